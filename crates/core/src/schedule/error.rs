//! The reasons why a trigger cannot be used as it is declared.

use crate::{limits, time::Millis};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    #[error("`{text}` is not a cron expression: {reason}")]
    Cron { text: String, reason: String },
    #[error("`{text}` is not a recurrence rule: {reason}")]
    Rule { text: String, reason: String },
    #[error("`{text}` never occurs")]
    NeverFires { text: String },
    #[error("there is no time zone `{0}`; names are `UTC` or such as `Europe/Paris`")]
    UnknownZone(String),
    #[error("an interval of {0} is too short; the minimum is {least}", least = Millis(limits::TRIGGER_INTERVAL_LEAST))]
    ShortInterval(Millis),
    #[error("an interval of {0} is too long; the maximum is {most}", most = Millis(limits::TIMEOUT))]
    LongInterval(Millis),
    #[error("a jitter of {0} is too long; the maximum is {most}", most = Millis(limits::TRIGGER_JITTER))]
    LongJitter(Millis),
    #[error("only a cron schedule may set `catchup`")]
    CatchupWithoutCron,
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
    #[error("`retry.max_attempts` is {0}; it must be from 1 to {most}", most = limits::TRIGGER_ATTEMPTS)]
    Attempts(u32),
    #[error("a schedule has {0} characters; the limit is {most}", most = limits::TRIGGER_SCHEDULE_BYTES)]
    LongSchedule(usize),
    #[error("`not_after` is before `not_before`")]
    EmptyWindow,
}
