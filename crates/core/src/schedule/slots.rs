//! Slots: the instants at which a schedule is due.
//!
//! Owns the mapping from civil time to instants around daylight-saving changes, and the searches over slots. A slot is
//! a whole instant before jitter. Does not know what happened to a slot.

use jiff::{
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};

use super::{
    cron::CronSeries,
    definition::{TriggerDefinition, TriggerSource, ValidityWindow},
    error::TriggerError,
    recurrence::{RecurrenceRule, RuleEnd},
};
use crate::{
    limits,
    time::{Millis, Timestamp},
};

/// A schedule, ready to be searched.
#[derive(Debug, Clone)]
pub struct SlotSchedule {
    rule: SlotRule,
    windows: Vec<ValidityWindow>,
}

#[derive(Debug, Clone)]
enum SlotRule {
    Interval { every: i64, from: Option<Timestamp> },
    Civil { series: CivilSeries, zone: TimeZone, real_hours: bool },
}

#[derive(Debug, Clone)]
enum CivilSeries {
    Cron(Box<CronSeries>),
    Rule(Box<RecurrenceRule>),
}

/// A number of slots that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotRange {
    pub first: Timestamp,
    pub last: Timestamp,
    /// The number of slots, counted up to a limit.
    pub count: u32,
}

impl SlotSchedule {
    /// Compiles the schedule of a trigger. Returns `None` if its source is not a schedule.
    pub fn compile(definition: &TriggerDefinition) -> Result<Option<SlotSchedule>, TriggerError> {
        let rule = match &definition.source {
            TriggerSource::Cron { cron, timezone } => {
                check_length(cron)?;
                let series = CronSeries::parse(cron)?;
                let real_hours = series.real_hours;
                let series = CivilSeries::Cron(Box::new(series));
                SlotRule::Civil { series, zone: find_zone(timezone)?, real_hours }
            }
            TriggerSource::Calendar { rule, timezone } => {
                check_length(rule)?;
                let rule = RecurrenceRule::parse(rule)?;
                let real_hours = rule.has_real_hours();
                let series = CivilSeries::Rule(Box::new(rule));
                SlotRule::Civil { series, zone: find_zone(timezone)?, real_hours }
            }
            TriggerSource::Interval { every, .. } if every.0 < limits::TRIGGER_INTERVAL_LEAST => {
                return Err(TriggerError::ShortInterval(*every));
            }
            TriggerSource::Interval { every, from } => {
                let length = i64::try_from(every.0).ok().filter(|_| every.0 <= limits::TIMEOUT);
                SlotRule::Interval { every: length.ok_or(TriggerError::LongInterval(*every))?, from: *from }
            }
            TriggerSource::Webhook { .. } | TriggerSource::Event { .. } | TriggerSource::Manual => return Ok(None),
        };
        let mut windows = definition.valid.clone();
        windows.sort_by_key(|window| window.not_before);
        Ok(Some(SlotSchedule { rule, windows }))
    }

    /// Returns the first slot after an instant. `anchor` is the time from which intervals and recurrence rules count:
    /// the time at which the trigger was armed.
    pub fn next_after(&self, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
        if self.windows.is_empty() {
            return self.rule.next_after(anchor, after);
        }
        let mut after = after;
        loop {
            let slot = self.rule.next_after(anchor, after)?;
            if self.windows.iter().any(|window| window.contains(slot)) {
                return Some(slot);
            }
            // Outside all windows, the search continues just before the next one.
            let later = self.windows.iter().filter_map(|window| window.not_before).find(|first| *first > slot)?;
            after = Timestamp(later.0.saturating_sub(1)).max(slot);
        }
    }

    /// Returns the last slot after `floor` and not after `until`.
    pub fn last_before(&self, anchor: Timestamp, floor: Timestamp, until: Timestamp) -> Option<Timestamp> {
        self.latest(anchor, floor, until, 1).pop()
    }

    /// Returns the latest `count` slots after `floor` and not after `until`, oldest first.
    pub fn latest(&self, anchor: Timestamp, floor: Timestamp, until: Timestamp, count: usize) -> Vec<Timestamp> {
        // Schedules are searched forwards, so the search begins a while before the end, and doubles that while.
        let mut width = Millis::from_mins(1).0 as i64;
        loop {
            let begin = Timestamp(until.0.saturating_sub(width)).max(floor);
            let found: Vec<Timestamp> = self.slots_in(anchor, begin, until).collect();
            if found.len() >= count || begin == floor {
                return found[found.len().saturating_sub(count)..].to_vec();
            }
            width = width.saturating_mul(2);
        }
    }

    /// Returns the slots after `floor` and not after `until`.
    pub fn slots_in(&self, anchor: Timestamp, floor: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
        let next = move |after: &Timestamp| self.next_after(anchor, *after).filter(|slot| *slot <= until);
        std::iter::successors(next(&floor), next)
    }

    /// Returns the slots after `floor` and not after `until` as a range.
    pub fn range_in(&self, anchor: Timestamp, floor: Timestamp, until: Timestamp) -> Option<SlotRange> {
        let most = limits::TRIGGER_COUNTED_SLOTS;
        let mut range: Option<SlotRange> = None;
        for slot in self.slots_in(anchor, floor, until) {
            match &mut range {
                None => range = Some(SlotRange { first: slot, last: slot, count: 1 }),
                Some(range) if range.count < most => (range.last, range.count) = (slot, range.count + 1),
                Some(range) => {
                    range.last = self.last_before(anchor, slot, until).unwrap_or(slot);
                    break;
                }
            }
        }
        range
    }
}

impl SlotRule {
    fn next_after(&self, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match self {
            SlotRule::Interval { every, from } => next_interval(*every, from.unwrap_or(anchor), after),
            SlotRule::Civil { series, zone, real_hours } => {
                let (anchor, after) = (to_instant(anchor)?, to_instant(after)?);
                let search = CivilSearch { series, zone, start: zone.to_datetime(anchor) };
                let found = if *real_hours { search.next_real(after) } else { search.next_fixed(after) };
                let end = match series {
                    CivilSeries::Rule(rule) => rule.until,
                    CivilSeries::Cron(_) => None,
                };
                let found = found.filter(|found| !matches!(end, Some(RuleEnd::Instant(end)) if *found > end));
                found.map(|found| Timestamp(found.as_millisecond()))
            }
        }
    }
}

fn next_interval(every: i64, from: Timestamp, after: Timestamp) -> Option<Timestamp> {
    if after < from {
        return Some(from);
    }
    let elapsed = after.0.checked_sub(from.0)?;
    after.0.checked_sub(elapsed % every)?.checked_add(every).map(Timestamp)
}

fn to_instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(at.0).ok()
}

fn check_length(text: &str) -> Result<(), TriggerError> {
    if text.len() > limits::TRIGGER_SCHEDULE_BYTES { Err(TriggerError::LongSchedule(text.len())) } else { Ok(()) }
}

/// Finds a zone of the IANA database that is built in.
fn find_zone(name: &str) -> Result<TimeZone, TriggerError> {
    let unknown = || TriggerError::UnknownZone(name.to_owned());
    // The database ignores case, which other systems do not.
    TimeZone::get(name).ok().filter(|zone| zone.iana_name() == Some(name)).ok_or_else(unknown)
}

/// The search for the next instant of a series of civil times in a zone.
struct CivilSearch<'a> {
    series: &'a CivilSeries,
    zone: &'a TimeZone,
    /// The civil time of the anchor.
    start: DateTime,
}

impl CivilSearch<'_> {
    fn next_civil(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        match self.series {
            CivilSeries::Cron(series) => series.next(from, inclusive),
            CivilSeries::Rule(rule) => rule.next(self.start.date(), from, inclusive),
        }
    }

    /// Finds the next slot of a series of fixed hours. A time in a gap occurs at the end of the gap, and a time that
    /// occurs twice counts once, in its first pass. So later civil times never map to earlier instants.
    fn next_fixed(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut civil = self.zone.to_datetime(after);
        loop {
            civil = self.next_civil(civil, false)?;
            let slot = self.map_fixed(civil)?;
            if slot > after {
                return Some(slot);
            }
        }
    }

    fn map_fixed(&self, civil: DateTime) -> Option<jiff::Timestamp> {
        let ambiguous = self.zone.to_ambiguous_zoned(civil);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
                ambiguous.earlier().ok().map(|zoned| zoned.timestamp())
            }
            AmbiguousOffset::Gap { before, .. } => {
                // The offset before the gap leads to an instant at or after its end, within the length of the gap.
                let inside = before.to_timestamp(civil).ok()?.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
                self.zone.preceding(inside).next().map(|transition| transition.timestamp())
            }
        }
    }

    /// Finds the next slot of a series that has all hours. Every instant whose civil time is in the series counts: none
    /// in a gap, and both passes of a time that occurs twice. Between two changes of the offset, civil time and instants
    /// advance together, so each such span is searched by itself.
    fn next_real(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut begin, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(begin);
            let end = self.zone.following(begin).next().map(|transition| transition.timestamp());
            let civil = self.next_civil(offset.to_datetime(begin), inclusive);
            let slot = civil.and_then(|civil| offset.to_timestamp(civil).ok());
            if let Some(slot) = slot.filter(|slot| end.is_none_or(|end| *slot < end)) {
                return Some(slot);
            }
            // A series that has ended can recur only in the second pass of the times just before its end.
            let soon = |end: &jiff::Timestamp| slot.is_some() || begin.duration_until(*end).as_hours() < 48;
            (begin, inclusive) = (end.filter(soon)?, true);
        }
    }
}

/// Returns the names of all zones of the database that is built in.
pub fn zone_names() -> Vec<String> {
    let mut names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    names.sort();
    names
}
