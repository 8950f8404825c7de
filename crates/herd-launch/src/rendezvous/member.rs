//! One node's connection to the endpoint. What was heard is kept as a view of how things stand, and
//! what is wanted as the newest wish, so that neither side of it can block the other.

use std::time::Duration;

use herd_link::{Receiver, Sender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::hub::BEAT;
use super::message::{Assignment, Disturbance, FromHost, Gathering, Hello, ToHost};

/// For a goodbye.
const PROMPT: Duration = Duration::from_secs(2);

/// How the rendezvous ended for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    PeerFailed { node: String, reason: String },
    Released,
    Unfit { reason: String },
    Closed { reason: String },
    HostLeft,
    Lost { reason: String },
}

/// How things stand.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The newest round with this node.
    pub(super) world: Option<Assignment>,
    /// What disturbs a round.
    pub(super) disturbed: Option<(u64, Disturbance)>,
    pub(super) gathering: Option<Gathering>,
    pub(super) end: Option<End>,
}

impl View {
    fn hear(&mut self, message: FromHost) {
        match message {
            FromHost::Beat { gathering } => self.gathering = gathering,
            FromHost::World(assignment) => self.world = Some(*assignment),
            FromHost::Disturbed { round, what } => self.disturbed = Some((round, what)),
            FromHost::PeerFailed { node, reason } => {
                self.end = Some(End::PeerFailed { node, reason });
            }
            FromHost::Released => self.end = Some(End::Released),
            FromHost::Unfit { reason } => self.end = Some(End::Unfit { reason }),
            FromHost::Closed { reason } => self.end = Some(End::Closed { reason }),
            FromHost::HostLeaves => self.end = Some(End::HostLeft),
            FromHost::Unknown => {}
        }
    }
}

/// A connection and the task that serves it, which ends with this.
#[derive(Debug)]
pub(super) struct Member {
    wish: watch::Sender<Option<ToHost>>,
    view: watch::Receiver<View>,
    tasks: JoinSet<()>,
}

impl Member {
    /// Says who this node is, and goes on from there.
    pub(super) fn start(link: (Sender, Receiver), hello: Hello, lost: Duration) -> Self {
        let (wish, wishes) = watch::channel(None);
        let (views, view) = watch::channel(View::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let end = converse(link, hello, wishes, &views, lost).await;
            views.send_modify(|view| {
                view.end.get_or_insert(end);
            });
        });
        Self { wish, view, tasks }
    }

    /// Wants this from now on.
    pub(super) fn wish(&self, wish: ToHost) {
        let wish = Some(wish);
        self.wish.send_if_modified(|current| {
            let new = *current != wish;
            if new {
                current.clone_from(&wish);
            }
            new
        });
    }

    /// How things stand; [`Self::changed`] waits for anything after that.
    pub(super) fn view(&mut self) -> View {
        self.view.borrow_and_update().clone()
    }

    /// Waits for a change of how things stand; for ever, once they cannot change any more.
    pub(super) async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the connection's end, at most for `bound`.
    pub(super) async fn ended(&mut self, bound: Duration) {
        let _late = timeout(bound, self.tasks.join_next()).await;
    }
}

async fn converse(
    (mut sender, mut receiver): (Sender, Receiver),
    hello: Hello,
    mut wishes: watch::Receiver<Option<ToHost>>,
    views: &watch::Sender<View>,
    lost: Duration,
) -> End {
    let broken = |reason: String| End::Lost { reason };
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent_at = Instant::now() + lost;
    if let Err(end) = send(&mut sender, &ToHost::Hello(hello), lost).await {
        return end;
    }
    loop {
        let message = tokio::select! {
            // What the peer said last counts, also where sending to it fails by now.
            biased;
            frame = receiver.recv() => {
                silent_at = Instant::now() + lost;
                let message: FromHost = match frame.map(|frame| frame.map(|frame| frame.parse_json())) {
                    Ok(Some(Ok(message))) => message,
                    Ok(None) => return broken("it has ended".into()),
                    Ok(Some(Err(error))) | Err(error) => return broken(error.to_string()),
                };
                let last = message.is_last();
                views.send_modify(|view| view.hear(message));
                if last {
                    let _late = timeout(PROMPT, sender.close()).await;
                    return End::HostLeft;
                }
                continue;
            }
            changed = wishes.changed() => {
                if changed.is_err() {
                    return End::HostLeft;
                }
                wishes.borrow_and_update().clone().unwrap_or(ToHost::Beat)
            }
            _ = beat.tick() => ToHost::Beat,
            () = sleep_until(silent_at) => {
                return broken(format!("it was silent for {} s", lost.as_secs()));
            }
        };
        if let Err(end) = send(&mut sender, &message, lost).await {
            return end;
        }
    }
}

/// Sends one message. That it fails is no end: why is in what can still be read, if anywhere.
async fn send(sender: &mut Sender, message: &ToHost, bound: Duration) -> Result<(), End> {
    let sent = async {
        sender.send_json(message).await?;
        sender.flush().await
    };
    match timeout(bound, sent).await {
        Ok(Ok(()) | Err(_)) => Ok(()),
        Err(_elapsed) => Err(End::Lost {
            reason: format!("it has not read for {} s", bound.as_secs()),
        }),
    }
}
