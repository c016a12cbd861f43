//! Recurrence rules of RFC 5545 over civil time.
//!
//! Owns their syntax and their expansion. A rule starts at midnight of a day that the caller gives, and knows no zone;
//! `slots` maps its results to instants. The search begins near the time that is asked for, so its cost does not grow
//! with the age of a rule, unless the rule has a `COUNT`.

use jiff::{
    ToSpan,
    civil::{Date, DateTime, Time, Weekday},
};

use super::error::TriggerError;
use crate::limits;

/// The number of years after which a search gives up.
const SEARCH_YEARS: i16 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleFrequency {
    Secondly,
    Minutely,
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

const FREQUENCIES: &[(&str, RuleFrequency)] = &[
    ("SECONDLY", RuleFrequency::Secondly),
    ("MINUTELY", RuleFrequency::Minutely),
    ("HOURLY", RuleFrequency::Hourly),
    ("DAILY", RuleFrequency::Daily),
    ("WEEKLY", RuleFrequency::Weekly),
    ("MONTHLY", RuleFrequency::Monthly),
    ("YEARLY", RuleFrequency::Yearly),
];

const WEEKDAYS: &[(&str, Weekday)] = &[
    ("MO", Weekday::Monday),
    ("TU", Weekday::Tuesday),
    ("WE", Weekday::Wednesday),
    ("TH", Weekday::Thursday),
    ("FR", Weekday::Friday),
    ("SA", Weekday::Saturday),
    ("SU", Weekday::Sunday),
];

/// The reason why a text is no rule.
#[derive(Debug)]
struct RuleFault(String);

impl From<&str> for RuleFault {
    fn from(text: &str) -> RuleFault {
        RuleFault(text.to_owned())
    }
}

impl From<String> for RuleFault {
    fn from(text: String) -> RuleFault {
        RuleFault(text)
    }
}

/// The end of a rule. An instant is checked after the rule's times are mapped to the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleEnd {
    Civil(DateTime),
    Instant(jiff::Timestamp),
}

/// A parsed recurrence rule.
#[derive(Debug, Clone)]
pub(super) struct RecurrenceRule {
    frequency: RuleFrequency,
    interval: i64,
    count: Option<u32>,
    pub until: Option<RuleEnd>,
    months: Vec<i16>,
    week_numbers: Vec<i16>,
    year_days: Vec<i16>,
    month_days: Vec<i16>,
    /// Weekdays, each with its number in the month or year; 0 for all.
    weekdays: Vec<(i16, Weekday)>,
    hours: Vec<i16>,
    minutes: Vec<i16>,
    seconds: Vec<i16>,
    positions: Vec<i16>,
    week_start: Weekday,
}

impl RecurrenceRule {
    /// Parses a rule, perhaps after `RRULE:`.
    pub(crate) fn parse(text: &str) -> Result<RecurrenceRule, TriggerError> {
        let bad = |RuleFault(reason)| TriggerError::Rule { text: text.to_owned(), reason };
        let trimmed = text.trim();
        let rule = read_parts(trimmed.strip_prefix("RRULE:").unwrap_or(trimmed)).map_err(bad)?;
        rule.check().map_err(bad)?;
        let anyway = RecurrenceRule { interval: 1, count: None, until: None, ..rule.clone() };
        if anyway.next(Date::constant(2024, 1, 1), DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true).is_none() {
            return Err(TriggerError::NeverFires { text: text.to_owned() });
        }
        Ok(rule)
    }

    /// True if the rule recurs within the day at every hour, so that real hours count.
    pub(crate) fn has_real_hours(&self) -> bool {
        self.frequency <= RuleFrequency::Hourly && self.hours.is_empty()
    }

    /// Returns the first occurrence after a civil time, or at it if `inclusive`, of the rule that starts at midnight of
    /// `start`.
    pub(crate) fn next(&self, start: Date, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let is_later = |found: &DateTime| *found > from || (inclusive && *found == from);
        let end = match self.until {
            Some(RuleEnd::Civil(end)) => end,
            _ => DateTime::MAX,
        };
        let found = match self.count {
            None => self.occurrences(start, from).find(is_later),
            Some(count) => {
                let all = self.occurrences(start, start.to_datetime(Time::midnight()));
                all.take(usize::try_from(count).unwrap_or(usize::MAX)).find(is_later)
            }
        };
        found.filter(|found| *found <= end)
    }

    /// Returns the occurrences from about `from` on, in order. Some may be before `from`, none before `start`.
    fn occurrences(&self, start: Date, from: DateTime) -> impl Iterator<Item = DateTime> {
        let first = start.to_datetime(Time::midnight());
        let from = from.max(first);
        let last_year = from.year().saturating_add(SEARCH_YEARS);
        let mut cursor = self.first_period(start, from);
        let periods = std::iter::from_fn(move || {
            while let Some(period) = cursor.filter(|period| period.year() <= last_year) {
                let (found, next) = self.expand_period(start, period);
                cursor = next;
                if !found.is_empty() {
                    return Some(found);
                }
            }
            None
        });
        periods.flatten().skip_while(move |found| *found < first)
    }

    /// Returns the beginning of the last period of the rule that begins at or before `from`.
    fn first_period(&self, start: Date, from: DateTime) -> Option<DateTime> {
        let date = from.date();
        let aligned = |distance: i64| distance - distance.rem_euclid(self.interval);
        let day = match self.frequency {
            RuleFrequency::Yearly => {
                let years = aligned(i64::from(date.year()) - i64::from(start.year()));
                Date::new(i16::try_from(i64::from(start.year()) + years).ok()?, 1, 1).ok()?
            }
            RuleFrequency::Monthly => {
                month_from_index(month_index(start) + aligned(month_index(date) - month_index(start)))?
            }
            RuleFrequency::Weekly => {
                let first = self.week_beginning(start)?;
                let weeks = days_between(first, self.week_beginning(date)?) / 7;
                add_days(first, aligned(weeks) * 7)?
            }
            RuleFrequency::Daily => add_days(start, aligned(days_between(start, date)))?,
            // Periods within a day are expanded by the hour, and selected there.
            _ => return date.at(from.hour(), 0, 0, 0).into(),
        };
        Some(day.to_datetime(Time::midnight()))
    }

    /// Returns the occurrences in the period that begins at `period`, in order, and the beginning of the next period.
    fn expand_period(&self, start: Date, period: DateTime) -> (Vec<DateTime>, Option<DateTime>) {
        let date = period.date();
        let (days, next) = match self.frequency {
            RuleFrequency::Yearly => (
                i64::from(date.days_in_year()),
                i16::try_from(i64::from(date.year()) + self.interval).ok().and_then(|year| Date::new(year, 1, 1).ok()),
            ),
            RuleFrequency::Monthly => {
                (i64::from(date.days_in_month()), month_from_index(month_index(date) + self.interval))
            }
            RuleFrequency::Weekly => (7, add_days(date, self.interval.saturating_mul(7))),
            RuleFrequency::Daily => (1, add_days(date, self.interval)),
            _ => return self.expand_hour(start, period),
        };
        let dates = (0..days).filter_map(|n| add_days(date, n)).filter(|day| self.matches_date(*day, start));
        let times = self.day_times();
        let found: Vec<DateTime> = dates.flat_map(|day| times.iter().map(move |time| day.to_datetime(*time))).collect();
        (self.select_positions(found), next.map(|day| day.to_datetime(Time::midnight())))
    }

    /// Returns the occurrences in an hour, for rules that recur within the day, and the beginning of the next hour that
    /// may have some.
    fn expand_hour(&self, start: Date, period: DateTime) -> (Vec<DateTime>, Option<DateTime>) {
        let date = period.date();
        if !self.matches_date(date, start) {
            return (Vec::new(), add_days(date, 1).map(|day| day.to_datetime(Time::midnight())));
        }
        let next = period.checked_add(1.hour()).ok();
        if !self.hours.is_empty() && !self.hours.contains(&i16::from(period.hour())) {
            return (Vec::new(), next);
        }
        let hour = days_between(start, date) * 24 + i64::from(period.hour());
        let with = |minute: i16, second: i16| {
            let (minute, second) = (i8::try_from(minute).ok()?, i8::try_from(second).ok()?);
            period.with().minute(minute).second(second).build().ok()
        };
        let found = match self.frequency {
            RuleFrequency::Hourly if hour.rem_euclid(self.interval) == 0 => {
                let times = expand_pairs(&or_zero(&self.minutes), &or_zero(&self.seconds));
                self.select_positions(times.into_iter().filter_map(|(minute, second)| with(minute, second)).collect())
            }
            RuleFrequency::Hourly => Vec::new(),
            RuleFrequency::Minutely => {
                let minutes = (0..60).filter(|minute| {
                    (hour * 60 + i64::from(*minute)).rem_euclid(self.interval) == 0
                        && (self.minutes.is_empty() || self.minutes.contains(minute))
                });
                let in_minute = |minute| {
                    let seconds = or_zero(&self.seconds);
                    self.select_positions(seconds.into_iter().filter_map(|second| with(minute, second)).collect())
                };
                minutes.flat_map(in_minute).collect()
            }
            _ => {
                let matches = |second: i64| {
                    let (minute, second) = ((second / 60) as i16, (second % 60) as i16);
                    (self.minutes.is_empty() || self.minutes.contains(&minute))
                        && (self.seconds.is_empty() || self.seconds.contains(&second))
                };
                let first = (-hour * 3_600).rem_euclid(self.interval);
                let step = usize::try_from(self.interval).unwrap_or(usize::MAX);
                let seconds = (first..3_600).step_by(step).filter(|second| matches(*second));
                let in_second = |second: i64| {
                    self.select_positions(with((second / 60) as i16, (second % 60) as i16).into_iter().collect())
                };
                seconds.flat_map(in_second).collect()
            }
        };
        (found, next)
    }

    /// The times of a day at which a rule of days, weeks, months or years occurs.
    fn day_times(&self) -> Vec<Time> {
        let to_time = |hour: i16, minute: i16, second: i16| {
            Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?, 0).ok()
        };
        let later = expand_pairs(&or_zero(&self.minutes), &or_zero(&self.seconds));
        let hours = or_zero(&self.hours);
        hours.iter().flat_map(|hour| later.iter().filter_map(|(m, s)| to_time(*hour, *m, *s))).collect()
    }

    /// Keeps the positions of `BYSETPOS`.
    fn select_positions(&self, found: Vec<DateTime>) -> Vec<DateTime> {
        if self.positions.is_empty() {
            return found;
        }
        let length = found.len() as i64;
        let is_selected = |index: i64| {
            self.positions.iter().any(|position| match i64::from(*position) {
                after if after > 0 => index == after - 1,
                before => index == length + before,
            })
        };
        (0_i64..).zip(found).filter(|(index, _)| is_selected(*index)).map(|(_, at)| at).collect()
    }

    /// True if all parts of the rule about days hold. A part that the rule lacks comes from the first day.
    fn matches_date(&self, date: Date, start: Date) -> bool {
        let yearly = self.frequency == RuleFrequency::Yearly;
        let names_days = !self.year_days.is_empty() || !self.month_days.is_empty() || !self.weekdays.is_empty();
        let month = i16::from(date.month());
        if !self.months.is_empty() && !self.months.contains(&month) {
            return false;
        }
        if !names_days {
            let fits = match self.frequency {
                RuleFrequency::Yearly if !self.week_numbers.is_empty() => date.weekday() == start.weekday(),
                RuleFrequency::Yearly => {
                    date.day() == start.day() && (!self.months.is_empty() || date.month() == start.month())
                }
                RuleFrequency::Monthly => date.day() == start.day(),
                RuleFrequency::Weekly => date.weekday() == start.weekday(),
                _ => true,
            };
            if !fits {
                return false;
            }
        }
        let (week, weeks) = if self.week_numbers.is_empty() { (0, 0) } else { self.week_number(date) };
        let (year_day, year_days) = (date.day_of_year(), date.days_in_year());
        let (month_day, month_days) = (i16::from(date.day()), i16::from(date.days_in_month()));
        holds(&self.week_numbers, week, weeks)
            && holds(&self.year_days, year_day, year_days)
            && holds(&self.month_days, month_day, month_days)
            && (self.weekdays.is_empty()
                || self.weekdays.iter().any(|(number, weekday)| {
                    let (day, days) =
                        if yearly && self.months.is_empty() { (year_day, year_days) } else { (month_day, month_days) };
                    let is_nth = match *number {
                        0 => true,
                        n if n > 0 => (day - 1) / 7 + 1 == n,
                        n => (days - day) / 7 + 1 == -n,
                    };
                    date.weekday() == *weekday && is_nth
                }))
    }

    /// The first day of the week of a date.
    fn week_beginning(&self, date: Date) -> Option<Date> {
        add_days(date, -i64::from(date.weekday().since(self.week_start)))
    }

    /// The number of a date's week, and the number of weeks in the year to which that week belongs. The first week of a
    /// year is the first with four days in it.
    fn week_number(&self, date: Date) -> (i16, i16) {
        let middle = |date: Date| self.week_beginning(date).and_then(|first| add_days(first, 3)).unwrap_or(date);
        let number = |middle: Date| (middle.day_of_year() - 1) / 7 + 1;
        let own = middle(date);
        // The 28th of December is always in the last week.
        let last = Date::new(own.year(), 12, 28).map_or(own, middle);
        (number(own), number(last))
    }

    /// Checks the parts of the rule against one another.
    fn check(&self) -> Result<(), RuleFault> {
        let frequency = self.frequency;
        let yearly = frequency == RuleFrequency::Yearly;
        if !self.week_numbers.is_empty() && !yearly {
            return Err("`BYWEEKNO` needs `FREQ=YEARLY`".into());
        }
        let of_days = matches!(frequency, RuleFrequency::Daily | RuleFrequency::Weekly | RuleFrequency::Monthly);
        if !self.year_days.is_empty() && of_days {
            return Err("`BYYEARDAY` cannot be used with this `FREQ`".into());
        }
        if !self.month_days.is_empty() && frequency == RuleFrequency::Weekly {
            return Err("`BYMONTHDAY` cannot be used with `FREQ=WEEKLY`".into());
        }
        let numbered = self.weekdays.iter().any(|(number, _)| *number != 0);
        if numbered && (frequency < RuleFrequency::Monthly || !self.week_numbers.is_empty()) {
            return Err("a number in `BYDAY` needs `FREQ=MONTHLY` or `FREQ=YEARLY`, without `BYWEEKNO`".into());
        }
        let parts = [&self.months, &self.week_numbers, &self.year_days, &self.month_days];
        let times = [&self.hours, &self.minutes, &self.seconds];
        let selects = !self.weekdays.is_empty() || parts.iter().chain(&times).any(|part| !part.is_empty());
        if !self.positions.is_empty() && !selects {
            return Err("`BYSETPOS` needs another part that begins with `BY`".into());
        }
        if self.count.is_some() && self.until.is_some() {
            return Err("it has both `COUNT` and `UNTIL`".into());
        }
        Ok(())
    }
}

/// True if the list is empty, or has the number, counted from either end.
fn holds(list: &[i16], number: i16, total: i16) -> bool {
    list.is_empty() || list.iter().any(|wanted| *wanted == number || *wanted == number - total - 1)
}

fn or_zero(list: &[i16]) -> Vec<i16> {
    if list.is_empty() { vec![0] } else { list.to_vec() }
}

fn expand_pairs(minutes: &[i16], seconds: &[i16]) -> Vec<(i16, i16)> {
    minutes.iter().flat_map(|minute| seconds.iter().map(move |second| (*minute, *second))).collect()
}

fn add_days(date: Date, days: i64) -> Option<Date> {
    date.checked_add(jiff::Span::new().try_days(days).ok()?).ok()
}

fn days_between(first: Date, second: Date) -> i64 {
    first.until(second).map_or(0, |span| i64::from(span.get_days()))
}

fn month_index(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

fn month_from_index(index: i64) -> Option<Date> {
    let (year, month) = (i16::try_from(index.div_euclid(12)).ok()?, i8::try_from(index.rem_euclid(12)).ok()?);
    Date::new(year, month + 1, 1).ok()
}

fn read_parts(text: &str) -> Result<RecurrenceRule, RuleFault> {
    let mut rule = RecurrenceRule {
        frequency: RuleFrequency::Daily,
        interval: 1,
        count: None,
        until: None,
        months: Vec::new(),
        week_numbers: Vec::new(),
        year_days: Vec::new(),
        month_days: Vec::new(),
        weekdays: Vec::new(),
        hours: Vec::new(),
        minutes: Vec::new(),
        seconds: Vec::new(),
        positions: Vec::new(),
        week_start: Weekday::Monday,
    };
    let mut names: Vec<&str> = Vec::new();
    for part in text.split(';') {
        let pair = part.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = pair.ok_or_else(|| format!("`{part}` is not a name, `=` and a value"))?;
        if names.contains(&name) {
            return Err(format!("`{name}` is given twice").into());
        }
        names.push(name);
        rule.read_part(name, value)?;
    }
    if !names.contains(&"FREQ") {
        return Err("`FREQ` is missing, as in `FREQ=WEEKLY;BYDAY=MO`".into());
    }
    Ok(rule)
}

impl RecurrenceRule {
    fn read_part(&mut self, name: &str, value: &str) -> Result<(), RuleFault> {
        match name {
            "FREQ" => self.frequency = look_up(FREQUENCIES, value)?,
            "INTERVAL" => self.interval = i64::from(read_number(value, 1, 10_000)?),
            "COUNT" => {
                let count: u32 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
                if !(1..=limits::TRIGGER_RULE_COUNT).contains(&count) {
                    return Err(
                        format!("`COUNT` is {count}; it must be from 1 to {}", limits::TRIGGER_RULE_COUNT).into()
                    );
                }
                self.count = Some(count);
            }
            "UNTIL" => self.until = Some(read_until(value)?),
            "BYMONTH" => self.months = read_list(value, 1, 12)?,
            "BYWEEKNO" => self.week_numbers = read_signed_list(value, 53)?,
            "BYYEARDAY" => self.year_days = read_signed_list(value, 366)?,
            "BYMONTHDAY" => self.month_days = read_signed_list(value, 31)?,
            "BYDAY" => self.weekdays = value.split(',').map(read_weekday).collect::<Result<_, _>>()?,
            "BYHOUR" => self.hours = read_list(value, 0, 23)?,
            "BYMINUTE" => self.minutes = read_list(value, 0, 59)?,
            "BYSECOND" => self.seconds = read_list(value, 0, 59)?,
            "BYSETPOS" => self.positions = read_signed_list(value, 366)?,
            "WKST" => self.week_start = look_up(WEEKDAYS, value)?,
            _ => return Err(format!("there is no part `{name}`").into()),
        }
        Ok(())
    }
}

fn look_up<T: Copy>(table: &[(&str, T)], word: &str) -> Result<T, RuleFault> {
    let found = table.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| *value).ok_or_else(|| format!("there is no `{word}`").into())
}

fn read_number(text: &str, least: i16, most: i16) -> Result<i16, RuleFault> {
    let number: Option<i16> = text.strip_prefix('+').unwrap_or(text).parse().ok();
    let within = number.filter(|number| (least..=most).contains(number));
    within.ok_or_else(|| format!("`{text}` is not a number from {least} to {most}").into())
}

/// Reads a list of numbers, in order and without duplicates.
fn read_list(text: &str, least: i16, most: i16) -> Result<Vec<i16>, RuleFault> {
    let mut list: Vec<i16> = text.split(',').map(|item| read_number(item, least, most)).collect::<Result<_, _>>()?;
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// Reads a list of numbers that count from the beginning, or from the end if negative.
fn read_signed_list(text: &str, most: i16) -> Result<Vec<i16>, RuleFault> {
    let list = read_list(text, -most, most)?;
    if list.contains(&0) { Err(format!("`{text}` contains 0").into()) } else { Ok(list) }
}

fn read_weekday(text: &str) -> Result<(i16, Weekday), RuleFault> {
    let split = text.len().checked_sub(2).filter(|at| text.is_char_boundary(*at));
    let (number, name) = text.split_at(split.ok_or_else(|| format!("`{text}` is not a weekday"))?);
    let number = if number.is_empty() { 0 } else { read_number(number, -53, 53)? };
    if number == 0 && text.len() > 2 {
        return Err(format!("`{text}` contains 0").into());
    }
    Ok((number, look_up(WEEKDAYS, name)?))
}

/// Reads a date, a civil time, or an instant in UTC. A date includes its whole day.
fn read_until(text: &str) -> Result<RuleEnd, RuleFault> {
    let bad = || RuleFault(format!("`{text}` is not a date such as 20261231 or 20261231T235900Z"));
    let (civil, utc) = text.strip_suffix('Z').map_or((text, false), |civil| (civil, true));
    let has_digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit());
    let (date, time) = civil.split_once('T').unwrap_or((civil, "235959"));
    if !has_digits(date, 8) || !has_digits(time, 6) || (utc && !civil.contains('T')) {
        return Err(bad());
    }
    let civil: DateTime = format!("{date}T{time}").parse().map_err(|_| bad())?;
    if !utc {
        return Ok(RuleEnd::Civil(civil));
    }
    let instant = jiff::tz::Offset::UTC.to_timestamp(civil).map_err(|_| bad())?;
    Ok(RuleEnd::Instant(instant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, start: &str, count: usize) -> Vec<String> {
        let rule = RecurrenceRule::parse(text).unwrap();
        let start: Date = start.parse().unwrap();
        let (mut at, mut inclusive, mut found) = (start.to_datetime(Time::midnight()), true, Vec::new());
        while found.len() < count {
            let Some(next) = rule.next(start, at, inclusive) else { break };
            (at, inclusive) = (next, false);
            found.push(next.to_string());
        }
        found
    }

    /// Returns the first occurrences as dates.
    fn dates(text: &str, start: &str, count: usize) -> Vec<String> {
        expand(text, start, count).iter().map(|at| at.split('T').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn examples_of_the_standard() {
        let text = "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1";
        assert_eq!(dates(text, "1997-09-01", 3), ["1997-09-30", "1997-10-31", "1997-11-28"]);
        let text = "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO";
        assert_eq!(dates(text, "1997-08-05", 9), ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"]);
        let text = "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU";
        assert_eq!(dates(text, "1997-08-05", 9), ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"]);
        let text = "FREQ=YEARLY;BYDAY=20MO";
        assert_eq!(dates(text, "1997-05-19", 3), ["1997-05-19", "1998-05-18", "1999-05-17"]);
        let text = "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO";
        assert_eq!(dates(text, "1997-05-12", 3), ["1997-05-12", "1998-05-11", "1999-05-17"]);
        let text = "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13";
        assert_eq!(dates(text, "1997-09-02", 3), ["1998-02-13", "1998-03-13", "1998-11-13"]);
        let text = "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8";
        assert_eq!(dates(text, "1996-11-05", 3), ["1996-11-05", "2000-11-07", "2004-11-02"]);
        let text = "FREQ=YEARLY;INTERVAL=3;COUNT=4;BYYEARDAY=1,100,200";
        assert_eq!(dates(text, "1997-01-01", 9), ["1997-01-01", "1997-04-10", "1997-07-19", "2000-01-01"]);
        let text = "FREQ=MONTHLY;BYMONTHDAY=-3";
        assert_eq!(dates(text, "1997-09-28", 3), ["1997-09-28", "1997-10-29", "1997-11-28"]);
        let text = "FREQ=DAILY;BYHOUR=9,10;BYMINUTE=0,40";
        assert_eq!(
            expand(text, "1997-09-02", 3),
            ["1997-09-02T09:00:00", "1997-09-02T09:40:00", "1997-09-02T10:00:00"]
        );
    }

    #[test]
    fn a_missing_part_comes_from_the_first_day() {
        assert_eq!(dates("RRULE:FREQ=MONTHLY", "2026-01-31", 3), ["2026-01-31", "2026-03-31", "2026-05-31"]);
        assert_eq!(dates("FREQ=YEARLY", "2024-02-29", 2), ["2024-02-29", "2028-02-29"]);
        assert_eq!(dates("FREQ=YEARLY;BYMONTH=3", "2026-01-15", 2), ["2026-03-15", "2027-03-15"]);
        assert_eq!(dates("FREQ=YEARLY;BYWEEKNO=1", "2026-01-01", 2), ["2026-01-01", "2027-01-07"]);
        assert_eq!(dates("FREQ=WEEKLY", "2026-01-01", 2), ["2026-01-01", "2026-01-08"]);
    }

    #[test]
    fn the_last_week_of_a_year_may_end_in_the_next() {
        // The first of January 2039 is a Saturday of the 52nd week of 2038.
        let text = "FREQ=YEARLY;BYMONTH=1;BYWEEKNO=52;BYDAY=SA";
        assert_eq!(dates(text, "2026-10-29", 3), ["2028-01-01", "2039-01-01", "2050-01-01"]);
        assert_eq!(dates("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=MO", "2026-01-01", 2), ["2026-12-28", "2027-12-27"]);
    }

    #[test]
    fn an_interval_within_the_day_keeps_its_phase() {
        let text = "FREQ=MINUTELY;INTERVAL=90;BYHOUR=3";
        assert_eq!(expand(text, "2026-01-01", 2), ["2026-01-01T03:00:00", "2026-01-02T03:00:00"]);
        let text = "FREQ=HOURLY;INTERVAL=5;BYHOUR=3,4";
        assert_eq!(expand(text, "2026-01-01", 2), ["2026-01-04T03:00:00", "2026-01-05T04:00:00"]);
        let text = "FREQ=SECONDLY;INTERVAL=5400;BYHOUR=3";
        assert_eq!(expand(text, "2026-01-01", 2), ["2026-01-01T03:00:00", "2026-01-02T03:00:00"]);
        assert_eq!(expand("FREQ=SECONDLY;INTERVAL=25", "2026-01-01", 4)[3], "2026-01-01T00:01:15");
    }

    #[test]
    fn a_rule_ends() {
        assert_eq!(dates("FREQ=DAILY;UNTIL=20260103", "2026-01-02", 9), ["2026-01-02", "2026-01-03"]);
        assert_eq!(dates("FREQ=DAILY;BYHOUR=9;UNTIL=20260103T085959", "2026-01-02", 9), ["2026-01-02"]);
        assert_eq!(dates("FREQ=DAILY;COUNT=2", "2026-01-02", 9), ["2026-01-02", "2026-01-03"]);
        let rule = RecurrenceRule::parse("FREQ=DAILY;UNTIL=20260103T000000Z").unwrap();
        assert_eq!(rule.until, Some(RuleEnd::Instant("2026-01-03T00:00Z".parse().unwrap())));
    }

    #[test]
    fn other_texts_are_refused() {
        let bad = [
            "",
            "WEEKLY",
            "FREQ=",
            "FREQ=OFTEN",
            "BYDAY=MO",
            "FREQ=DAILY;;",
            "FREQ=DAILY;FREQ=DAILY",
            "FREQ=DAILY;BYEASTER=1",
            "FREQ=DAILY;INTERVAL=0",
            "FREQ=DAILY;COUNT=0",
            "FREQ=DAILY;COUNT=10001",
            "FREQ=DAILY;BYHOUR=24",
            "FREQ=DAILY;BYDAY=1MO",
            "FREQ=DAILY;BYDAY=XX",
            "FREQ=MONTHLY;BYDAY=0MO",
            "FREQ=MONTHLY;BYDAY=é",
            "FREQ=WEEKLY;BYMONTHDAY=1",
            "FREQ=MONTHLY;BYWEEKNO=1",
            "FREQ=MONTHLY;BYYEARDAY=1",
            "FREQ=DAILY;BYSETPOS=1",
            "FREQ=DAILY;COUNT=1;UNTIL=20260101",
            "FREQ=DAILY;UNTIL=soon",
            "FREQ=DAILY;UNTIL=20260101Z",
            "FREQ=MONTHLY;BYMONTHDAY=0",
        ];
        for text in bad {
            assert!(matches!(RecurrenceRule::parse(text), Err(TriggerError::Rule { .. })), "{text}");
        }
        let never = RecurrenceRule::parse("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30");
        assert!(matches!(never, Err(TriggerError::NeverFires { .. })));
    }

    /// True if the rule occurs in this minute, by the definition of each part and without any search.
    fn occurs(rule: &RecurrenceRule, start: Date, at: DateTime) -> bool {
        let date = at.date();
        let days = days_between(start, date);
        let minutes = days * 1_440 + i64::from(at.hour()) * 60 + i64::from(at.minute());
        let weeks = (days + i64::from(start.weekday().since(rule.week_start))).div_euclid(7);
        let distance = match rule.frequency {
            RuleFrequency::Secondly => minutes * 60,
            RuleFrequency::Minutely => minutes,
            RuleFrequency::Hourly => minutes.div_euclid(60),
            RuleFrequency::Daily => days,
            RuleFrequency::Weekly => weeks,
            RuleFrequency::Monthly => month_index(date) - month_index(start),
            RuleFrequency::Yearly => i64::from(date.year() - start.year()),
        };
        let minute_fits = rule.minutes.contains(&i16::from(at.minute()))
            || rule.minutes.is_empty() && (rule.frequency <= RuleFrequency::Minutely || at.minute() == 0);
        let hour_fits = rule.hours.contains(&i16::from(at.hour()))
            || rule.hours.is_empty() && (rule.frequency <= RuleFrequency::Hourly || at.hour() == 0);
        distance % rule.interval == 0 && minute_fits && hour_fits && rule.matches_date(date, start)
    }

    #[test]
    fn the_search_finds_the_minutes_that_match_and_no_others() {
        let rules = [
            "FREQ=MINUTELY;INTERVAL=7",
            "FREQ=MINUTELY;INTERVAL=95;BYHOUR=1,2,9",
            "FREQ=MINUTELY;BYDAY=SU;BYHOUR=3;BYMINUTE=1,59",
            "FREQ=HOURLY;INTERVAL=5",
            "FREQ=HOURLY;INTERVAL=25;BYMINUTE=15,30",
            "FREQ=HOURLY;BYMONTHDAY=-1,3;BYHOUR=0,23",
            "FREQ=DAILY;INTERVAL=3;BYHOUR=0,12",
            "FREQ=DAILY;BYDAY=MO,FR",
            "FREQ=DAILY;BYMONTH=2,4",
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO",
            "FREQ=WEEKLY;INTERVAL=3;WKST=SU;BYDAY=SA,SU;BYHOUR=6",
            "FREQ=MONTHLY;BYDAY=1MO,-1FR",
            "FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=1,-1",
            "FREQ=YEARLY;BYYEARDAY=1,45,-300",
            "FREQ=YEARLY;BYWEEKNO=8,9;BYDAY=TU",
            "FREQ=SECONDLY;INTERVAL=540",
        ];
        let start = Date::constant(2026, 1, 30);
        let end = DateTime::constant(2026, 3, 15, 0, 0, 0, 0);
        for text in rules {
            let rule = RecurrenceRule::parse(text).unwrap();
            let (mut minute, mut last) = (start.to_datetime(Time::midnight()), None);
            while minute < end {
                if occurs(&rule, start, minute) {
                    let from: DateTime = last.unwrap_or(start.to_datetime(Time::midnight()));
                    assert_eq!(rule.next(start, from, last.is_none()), Some(minute), "{text} after {from}");
                    last = Some(minute);
                }
                minute = minute.checked_add(1.minute()).unwrap();
            }
            assert!(rule.next(start, last.unwrap(), false).is_none_or(|next| next >= end), "{text}");
        }
    }
}
