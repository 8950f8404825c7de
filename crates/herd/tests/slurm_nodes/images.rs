//! Jobs with `image`: through Pyxis, through Slurm's OCI support, and refused. No container engine runs here:
//! stand-ins of the lab do what both do to a task, with a tree in place of an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::lab::{Cluster, User};

/// What a job in an image looks at: that it is in it, in a login shell, and sees its own directory. The first
/// rank ends early, and what it leaves lives on.
const LOOK: &str = "cat /etc/image; shopt -q login_shell && echo a login shell; test -e note && echo sees its directory\n\
    if [ $HERD_RANK = 0 ]; then setsid sh -c 'touch out; sleep 1; touch late; sleep 600' </dev/null >/dev/null 2>&1 &\n\
    while [ ! -e out ]; do sleep 0.1; done\n\
    else while [ ! -e late ]; do sleep 0.1; done; echo saw it; exit 6; fi";

fn pyxis() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::up(2, &["--containers", "pyxis"]))
}

fn oci() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::up(2, &["--containers", "oci"]))
}

fn job(user: &User<'_>, image: &str, run: &str) -> Value {
    fs::write(user.path("note"), "").unwrap();
    json!({"nodes": 2, "image": image, "run": run, "workdir": user.path("").to_str().unwrap()})
}

/// A copy of the lab's bundle that mounts what a job of the user needs.
fn bundle(user: &User<'_>, mounts: &[&Path]) -> PathBuf {
    let lab = PathBuf::from(user.cluster.lab.variable("HERD_LAB_SLURM_DIR"));
    let bundle = user.path("bundle");
    fs::create_dir(&bundle).unwrap();
    let text = fs::read_to_string(lab.join("bundle/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for path in mounts {
        let entry =
            json!({"destination": path, "source": path, "type": "bind", "options": ["rbind"]});
        config["mounts"].as_array_mut().unwrap().push(entry);
    }
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([lab.join("bundle/rootfs"), bundle.join("rootfs")])
        .status();
    assert!(copied.unwrap().success());
    bundle
}

fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_herd")).parent().unwrap()
}

fn runs_inside(user: &User<'_>, image: &str) {
    let running = user.submit(job(user, image, LOOK));
    running.ends("FAILED", 6);
    let log = running.text("run.log");
    for rank in 0..2 {
        for line in ["lab", "a login shell", "sees its directory"] {
            assert!(log.contains(&format!("rank={rank}) {line}\n")), "{log}");
        }
    }
    assert!(log.contains("rank=1) saw it\n"), "{log}");
    running.ends_all_processes();
    let trapping = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1 || :; done";
    let running = user.submit(job(user, image, trapping));
    running.says("rank=0) up");
    running.says("rank=1) up");
    assert_eq!(user.ask(&["cancel", &running.id]).code, 0);
    running.ends("CANCELLED", 130);
    assert_eq!(running.text("run.log").matches(") asked\n").count(), 2);
    running.ends_all_processes();
}

#[test]
fn r25_an_image_by_name_through_pyxis() {
    runs_inside(&User::sharing(pyxis()), "registry.example/lab/any:1");
}

#[test]
fn r25_an_image_on_nodes_that_share_nothing() {
    let user = User::of(pyxis());
    let job =
        user.submit(json!({"nodes": 2, "image": "any:1", "run": "cat /etc/image; pwd; exit 3"}));
    job.ends("FAILED", 3);
    assert!(
        job.text("run.log").contains(") lab\n"),
        "{}",
        job.text("run.log")
    );
    job.leaves_nothing();
}

#[test]
fn r25_a_bundle_through_slurms_oci_support() {
    let user = User::sharing(oci());
    let bundle = bundle(&user, &[user.path("").as_path(), programs()]);
    runs_inside(&user, bundle.to_str().unwrap());
}

#[test]
fn a_bundle_that_does_not_show_the_job_is_told_what_to_mount() {
    let user = User::sharing(oci());
    let bundle = bundle(&user, &[programs()]);
    let job = user.submit(job(&user, bundle.to_str().unwrap(), "true"));
    let result = job.ends("FAILED", 125);
    assert!(
        result["failure"].to_string().contains("does not mount"),
        "{result}"
    );
    // A name is nothing that Slurm itself could run.
    let refused = user.ask(&[
        "submit",
        &user.file(json!({"image": "any:1", "run": "true"})),
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("absolute path of a bundle"),
        "{refused:?}"
    );
}

#[test]
fn i13_an_image_is_refused_where_nothing_runs_it_and_doctor_says_so() {
    for (cluster, says) in [
        (Cluster::shared(), "neither Pyxis nor oci.conf"),
        (pyxis(), "Pyxis: `image`"),
        (oci(), "path of a bundle"),
    ] {
        let user = User::sharing(cluster);
        let doctor = user.ask(&["doctor", "-b", "apart"]);
        let line = doctor.out.lines().find(|line| line.starts_with("images"));
        assert!(line.is_some_and(|line| line.contains(says)), "{doctor:?}");
    }
    let user = User::sharing(Cluster::shared());
    let refused = user.ask(&[
        "submit",
        &user.file(json!({"image": "any:1", "run": "true"})),
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("neither Pyxis nor"), "{refused:?}");
}
