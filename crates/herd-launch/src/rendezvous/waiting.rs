//! How long a node has waited to join, what for, and when to say so or to give up.

use std::time::Duration;

use tokio::time::Instant;

use super::message::Gathering;
use super::{Notice, RendezvousError, Settings};

/// Whoever refuses a node for so long will not take it later.
const REFUSED: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After the first notice they come less and less often, up to this.
const LONGEST_SILENCE: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) struct Waiting {
    since: Instant,
    /// None for one that stands by: nothing is missing.
    give_up: Option<Instant>,
    notice_at: Instant,
    silence: Duration,
    pause: Duration,
    refused_since: Option<Instant>,
    /// Enough nodes are here: only those that may still come are waited for, and not for long.
    enough: bool,
    what: String,
}

impl Waiting {
    pub(super) fn new(settings: &Settings) -> Self {
        let now = Instant::now();
        Self {
            since: now,
            give_up: Some(now + settings.timeouts.join),
            notice_at: now + settings.timeouts.notice,
            silence: settings.timeouts.notice,
            pause: FIRST_PAUSE,
            refused_since: None,
            enough: false,
            what: format!("no answer from {} yet", settings.place()),
        }
    }

    /// When to call [`Self::pass`].
    pub(super) fn next(&self) -> Instant {
        self.give_up
            .map_or(self.notice_at, |give_up| give_up.min(self.notice_at))
    }

    /// Time has passed: says what is waited for, or gives up.
    pub(super) fn pass(&mut self, settings: &Settings) -> Result<(), RendezvousError> {
        let now = Instant::now();
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            return Err(RendezvousError::TimedOut {
                id: settings.id.clone(),
                endpoint: settings.place().to_string(),
                after: settings.timeouts.join,
                what: self.what.clone(),
            });
        }
        if now >= self.notice_at {
            (settings.on_notice)(Notice::Waiting {
                since: now - self.since,
                bound: self
                    .give_up
                    .filter(|_| !self.enough)
                    .map(|give_up| give_up - self.since),
                what: self.what.clone(),
            });
            self.silence = (self.silence * 2).min(LONGEST_SILENCE);
            self.notice_at = now + self.silence;
        }
        Ok(())
    }

    /// A try to connect has failed. Returns when to try again.
    pub(super) fn failed(
        &mut self,
        settings: &Settings,
        what: String,
        refused: bool,
    ) -> Result<Instant, RendezvousError> {
        let now = Instant::now();
        self.what = what;
        self.enough = false;
        self.refused_since = refused.then(|| self.refused_since.unwrap_or(now));
        let refused_for = self.refused_since.map(|since| now - since);
        if refused_for.is_some_and(|refused| refused >= REFUSED) {
            return Err(RendezvousError::Refused {
                endpoint: settings.place().to_string(),
                after: REFUSED,
            });
        }
        let again = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(again)
    }

    /// The endpoint was reached and has said how far things are.
    pub(super) fn gather(&mut self, settings: &Settings, gathering: &Gathering) {
        let Gathering {
            ready,
            min_nodes,
            max_nodes,
            missing,
            spare,
        } = gathering;
        self.enough = ready >= min_nodes && missing.is_empty();
        if *spare {
            self.give_up = None;
            self.what = format!("all {max_nodes} places are taken; this node stands by");
            return;
        }
        self.give_up
            .get_or_insert_with(|| Instant::now() + settings.timeouts.join);
        let place = settings.place();
        let needed = if self.enough {
            let last_call = settings.timeouts.last_call.as_secs_f64();
            format!(
                "{ready} of {min_nodes} to {max_nodes} nodes are at {place}, which is enough: they \
                 begin once nobody else has come for {last_call} s (last_call_timeout)"
            )
        } else if min_nodes == max_nodes {
            format!("{ready} of {max_nodes} nodes are at {place}")
        } else {
            format!("{ready} of {min_nodes} to {max_nodes} nodes are at {place}")
        };
        self.what = if missing.is_empty() {
            needed
        } else {
            format!("{needed}; missing: {}", missing.join(", "))
        };
    }
}
