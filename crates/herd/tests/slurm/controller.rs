//! A controller that stops for a minute while jobs are in each of their phases.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use herd_testing::within;
use serde_json::json;

use crate::case;
use crate::faults::{on, waiting};
use crate::lab::Lab;
use crate::nodes::Replaced;
use crate::user::{DEADLINE, Job, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![case!(
        controller::i3_a_controller_that_stops_for_a_minute_ends_no_job
    )]
}

const STOPPED: Duration = Duration::from_mins(1);
/// How long Slurm is waited for about a job that runs by its own records.
const ANSWERED: Duration = Duration::from_millis(2200);

pub(crate) fn i3_a_controller_that_stops_for_a_minute_ends_no_job(lab: &Lab) {
    let _alone = lab.alone();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let script = waiting(&user);
    let each = |name: &str| {
        format!("touch {dir}/{name}-$HERD_NODE_RANK; while [ ! -e {dir}/go ]; do sleep 0.1; done")
    };
    let setup = json!({"on": "each", "run": each("setup")});
    let setting_up = user.submit(on([3, 4], json!({"setup": setup, "run": "echo ran"})));
    let running = user.submit(on([5, 6], json!({"run": script})));
    // What is due at its end needs the controller.
    let again = json!({
        "run": format!("[ $HERD_ATTEMPT = 1 ] || exit 0; {}; exit 9", each("failing")),
        "retry": {"max": 1, "on": ["exit:9"], "backoff": "1s"},
    });
    let failing = user.submit(on([7, 8], again));
    let unwanted = user.submit(on(
        [9, 10],
        json!({"run": format!("touch {dir}/unwanted-$HERD_RANK; sleep 600")}),
    ));
    let queued = user.submit(json!({"run": "echo ran", "after": [running.id]}));
    // Held, they never begin, and so find no request themselves.
    let held = json!({"extra": ["--hold"]});
    let waiting = [
        user.submit(json!({"run": "true", "slurm": held})),
        user.submit(json!({"run": "true", "slurm": held, "array": "0-3"})),
    ];
    for name in ["setup", "up-1", "failing", "unwanted"] {
        for node in 0..2 {
            user.await_file(&format!("{name}-{node}"));
        }
    }
    queued.await_state("QUEUED");
    // Its driver is about to start the step.
    let held = format!(
        "touch {dir}/starting; while [ ! -e {dir}/go-srun ]; do sleep 0.1; done; exec REAL \"$@\""
    );
    let srun = Replaced::on(&user, 1, "/usr/bin/srun", &held);
    let starting = user.submit(on([1, 2], json!({"run": "echo ran"})));
    user.await_file("starting");
    lab.slurm(&["node", "stop-slurmctld", "ctl"]);
    let stopped = Instant::now();
    user.touch("go-srun");
    let ended = |job: &Job<'_>| job.record("result.json");
    let file = user.file("late.yaml", json!({"run": "true"}));
    thread::scope(|scope| {
        scope.spawn(|| {
            within(2 * STOPPED, "a minute", || stopped.elapsed() >= STOPPED);
            // Nobody has ended those that cannot go on without it.
            for job in [&queued, &starting, &failing] {
                assert!(ended(job).is_null(), "{}", job.story());
            }
            lab.slurm(&["node", "start-slurmctld", "ctl"]);
        });
        // Nothing is said of what nobody can know. Slurm's commands take their time.
        let late = scope.spawn(|| user.ask(&["submit", &file]));
        let states = [&running, &setting_up].map(|job| scope.spawn(|| job.state()));
        // What needs no Slurm does not wait for it long, and says what it lacks.
        let noted = scope.spawn(|| running.status());
        let written = scope.spawn(|| {
            let asked = Instant::now();
            let written = user.ask(&["logs", &running.id]);
            (written, asked.elapsed())
        });
        let hold = scope.spawn(|| user.ask(&["hold", &queued.id]));
        // Its executors are told by its driver.
        let cancel = scope.spawn(|| user.ask(&["cancel", &unwanted.id]));
        let later = [&waiting[0], &waiting[1]].map(|job| {
            let user = &user;
            scope.spawn(move || user.ask(&["cancel", &job.id]))
        });
        assert_eq!(cancel.join().unwrap().code, 0);
        for cancel in later {
            let cancel = cancel.join().unwrap();
            assert_eq!(cancel.code, 0, "{cancel:?}");
            let told = "Slurm does not answer: ";
            assert!(cancel.err.contains(told), "{cancel:?}");
        }
        let states = states.map(|state| state.join().unwrap());
        assert_eq!(states, ["RUNNING", "SETTING_UP"]);
        let noted = noted.join().unwrap();
        let note = noted["note"].as_str().unwrap_or_default();
        assert!(note.contains("Slurm does not answer"), "{noted}");
        let (written, took) = written.join().unwrap();
        assert_eq!(written.code, 0, "{written:?}");
        assert!(took < 5 * ANSWERED, "{took:?}");
        let hold = hold.join().unwrap();
        assert_eq!(hold.code, 125, "{hold:?}");
        assert!(hold.err.contains("controller does not answer"), "{hold:?}");
        let refused = late.join().unwrap();
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(refused.err.contains("hint:"), "{refused:?}");
        // They go on, a phase further or to their ends.
        user.touch("go");
        for (job, state) in [
            (&running, "SUCCEEDED"),
            (&setting_up, "SUCCEEDED"),
            (&unwanted, "CANCELLED"),
        ] {
            within(DEADLINE, "the result", || ended(job).is_object());
            assert_eq!(ended(job)["state"], state, "{}", job.story());
        }
        within(DEADLINE, "the end of the first attempt", || {
            failing.record("attempts/1/end").is_object()
        });
    });
    assert_eq!(setting_up.log().matches(") ran\n").count(), 2);
    queued.ends("SUCCEEDED", 0);
    for job in waiting {
        let result = job.ends("CANCELLED", 130);
        assert_eq!(result["reason"], "asked for by herd cancel", "{result}");
    }
    // `srun` was started again as long as it found nobody, and once more where it waited in vain.
    let warned = fs::read_to_string(starting.dir.join("attempts/1/events.jsonl")).unwrap();
    assert!(warned.contains("it is started again"), "{warned}");
    starting.ends("SUCCEEDED", 0);
    assert_eq!(starting.log().matches(") ran\n").count(), 2);
    let result = failing.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{}", failing.story());
    unwanted.ends("CANCELLED", 130);
    drop(srun);
    for job in [running, setting_up, queued, starting, failing, unwanted] {
        job.gone();
    }
}
