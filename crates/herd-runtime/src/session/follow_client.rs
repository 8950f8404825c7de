//! Follows a job's merged output over the link: for those that do not see its directory, or see it
//! late, as over a network file system.

use std::ops::ControlFlow;
use std::time::Duration;

use herd_link::message::{FromCoordinator, ToCoordinator};
use herd_link::session::{SessionEvent, SessionMessage, follow};
use herd_link::{Frame, Sender, StdioFrame};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::client::{ClientError, Target, message};
use crate::executor::{HEARTBEAT, LEASE};

/// Bytes of one of the merged output's two files, in order and without gaps.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    /// Of `run.log`.
    Log(&'a [u8]),
    /// Of `run.index`; the text they speak of came before.
    Index(&'a [u8]),
    /// All is there that was when it was asked for.
    CaughtUp,
    /// Nothing came for a while ([`IDLE`]).
    Idle,
}

/// After so long without output the taker is asked whether it goes on.
pub const IDLE: Duration = Duration::from_millis(250);

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowEnd {
    /// The attempt is over, and all was sent.
    Complete,
    /// The taker wanted no more.
    Stopped,
}

impl Target {
    /// Hands the merged output to `take` as it grows, from these lengths of its files on, until the
    /// attempt ends or `take` wants no more. After an error what came before was right, and a later
    /// call can go on from there.
    pub async fn follow(
        &self,
        log: u64,
        index: u64,
        take: impl FnMut(Output<'_>) -> ControlFlow<()>,
    ) -> Result<FollowEnd, ClientError> {
        let (sender, mut receiver) = self.connect().await?;
        let mut following = Following {
            target: self,
            sender,
            missing: None,
            take,
        };
        following.say(&ToCoordinator::Follow { log, index }).await?;
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(IDLE);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            let end = tokio::select! {
                frame = receiver.recv() => {
                    heard = Instant::now();
                    match frame.map_err(self.link())? {
                        None => return Err(ClientError::Gone),
                        Some(Frame::Stdio(frame)) => following.output(&frame).await?,
                        Some(frame) => following.hear(&message(&frame), (log, index))?,
                    }
                }
                _ = look.tick() => following.give(Output::Idle),
                _ = beat.tick() => {
                    if heard.elapsed() > LEASE {
                        return Err(self.silent(LEASE));
                    }
                    following.say(&ToCoordinator::Heartbeat).await?;
                    None
                }
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }
}

struct Following<'a, T> {
    target: &'a Target,
    sender: Sender,
    /// What has not come of what the files held at the beginning; gone once the taker knows.
    missing: Option<(u64, u64)>,
    take: T,
}

impl<T: FnMut(Output<'_>) -> ControlFlow<()>> Following<'_, T> {
    /// Gives bytes to the taker, and only then says that more may come.
    async fn output(&mut self, frame: &StdioFrame) -> Result<Option<FollowEnd>, ClientError> {
        let bytes = frame.bytes.as_slice();
        let is_log = frame.stream == follow::LOG;
        if let Some((log, index)) = &mut self.missing {
            let part = if is_log { log } else { index };
            *part = part.saturating_sub(bytes.len() as u64);
        }
        let output = if is_log {
            Output::Log(bytes)
        } else {
            Output::Index(bytes)
        };
        let end = self.give(output).or_else(|| self.give_if_caught_up());
        let event = SessionEvent::Taken {
            stream: frame.stream,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        self.say(&ToCoordinator::Session(SessionMessage {
            session: 0,
            event,
        }))
        .await?;
        Ok(end)
    }

    fn hear(
        &mut self,
        message: &FromCoordinator,
        has: (u64, u64),
    ) -> Result<Option<FollowEnd>, ClientError> {
        match message {
            FromCoordinator::Following { log, index } => {
                self.missing = Some((log.saturating_sub(has.0), index.saturating_sub(has.1)));
                Ok(self.give_if_caught_up())
            }
            FromCoordinator::Followed => Ok(Some(FollowEnd::Complete)),
            FromCoordinator::Refused { reason } => Err(ClientError::Refused {
                reason: reason.clone(),
            }),
            _ => Ok(None),
        }
    }

    fn give_if_caught_up(&mut self) -> Option<FollowEnd> {
        self.missing.take_if(|missing| *missing == (0, 0))?;
        self.give(Output::CaughtUp)
    }

    fn give(&mut self, output: Output<'_>) -> Option<FollowEnd> {
        (self.take)(output).is_break().then_some(FollowEnd::Stopped)
    }

    async fn say(&mut self, message: &ToCoordinator) -> Result<(), ClientError> {
        let link = self.target.link();
        self.sender.send_json(message).await.map_err(&link)?;
        self.sender.flush().await.map_err(link)
    }
}
