//! One thing that was measured: what, how much, beside which limit, and whether that is good enough.

use serde_json::{Value, json};

/// What a figure is. Figures are seconds, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Shown as a time.
    Time,
    /// The time for one, shown as how many there are in a second.
    Rate,
    Bytes,
}

/// What is good enough. Less is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    AtMost(f64),
    /// So many times the limit.
    RatioAtMost(f64),
}

#[derive(Debug)]
pub struct Line {
    id: &'static str,
    name: String,
    figure: f64,
    unit: Unit,
    /// What the machine needs for what this is made of.
    limit: Option<(&'static str, f64)>,
    goal: Goal,
}

impl Line {
    pub fn new(
        id: &'static str,
        name: String,
        figure: f64,
        unit: Unit,
        limit: Option<(&'static str, f64)>,
        goal: Goal,
    ) -> Line {
        Line { id, name, figure, unit, limit, goal }
    }

    fn ratio(&self) -> Option<f64> {
        self.limit.map(|(_, limit)| self.figure / limit)
    }

    pub fn is_met(&self) -> bool {
        match self.goal {
            Goal::AtMost(most) => self.figure <= most,
            Goal::RatioAtMost(most) => self.ratio().is_some_and(|ratio| ratio <= most),
        }
    }

    /// What, measured, limit, ratio, goal and whether it is met.
    pub fn cells(&self) -> [String; 6] {
        let (limit, ratio) = match self.limit {
            Some((of, limit)) => (format!("{of} {}", self.unit.shown(limit)), ratio(self.ratio())),
            None => (String::new(), String::new()),
        };
        let goal = match (self.goal, self.unit) {
            (Goal::AtMost(most), Unit::Rate) => format!("at least {}", self.unit.shown(most)),
            (Goal::AtMost(most), unit) => format!("at most {}", unit.shown(most)),
            (Goal::RatioAtMost(most), _) => format!("ratio at most {most}"),
        };
        let met = if self.is_met() { "met" } else { "missed" };
        [self.name.clone(), self.unit.shown(self.figure), limit, ratio, goal, met.to_owned()]
    }

    pub fn json(&self) -> Value {
        let figure = |figure: f64| self.unit.plain(figure);
        let limit = self.limit.map(|(of, limit)| json!({"of": of, "figure": figure(limit)}));
        let goal = match (self.goal, self.unit) {
            (Goal::AtMost(most), Unit::Rate) => json!({"of": "figure", "at_least": figure(most)}),
            (Goal::AtMost(most), _) => json!({"of": "figure", "at_most": figure(most)}),
            (Goal::RatioAtMost(most), _) => json!({"of": "ratio", "at_most": most}),
        };
        json!({"id": self.id, "name": self.name, "figure": figure(self.figure), "unit": self.unit.word(),
               "limit": limit, "ratio": self.ratio(), "goal": goal, "met": self.is_met()})
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

impl Unit {
    /// For people.
    pub fn shown(self, figure: f64) -> String {
        match self {
            Unit::Time if figure < 0.001 => format!("{:.0} µs", figure * 1e6),
            Unit::Time if figure < 1.0 => format!("{:.1} ms", figure * 1e3),
            Unit::Time => format!("{figure:.2} s"),
            Unit::Rate => format!("{} a second", thousands(1.0 / figure)),
            Unit::Bytes => format!("{:.1} MB", figure / 1e6),
        }
    }

    /// For programs: milliseconds, a second, megabytes.
    pub fn plain(self, figure: f64) -> f64 {
        match self {
            Unit::Time => figure * 1e3,
            Unit::Rate => 1.0 / figure,
            Unit::Bytes => figure / 1e6,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Unit::Time => "ms",
            Unit::Rate => "per_second",
            Unit::Bytes => "MB",
        }
    }
}

/// A whole number, in groups of three.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_as_people_say_them() {
        assert_eq!(Unit::Time.shown(0.000_312), "312 µs");
        assert_eq!(Unit::Time.shown(0.0153), "15.3 ms");
        assert_eq!(Unit::Time.shown(1.5), "1.50 s");
        assert_eq!(Unit::Rate.shown(1.0 / 54_321.4), "54,321 a second");
        assert_eq!(Unit::Rate.shown(0.01), "100 a second");
        assert_eq!(Unit::Bytes.shown(12_340_000.0), "12.3 MB");
    }

    #[test]
    fn a_goal_is_about_the_figure_or_about_the_ratio() {
        let line = |figure, goal| Line::new("x", "x".into(), figure, Unit::Rate, Some(("y", 2.0)), goal);
        assert!(line(3.0, Goal::RatioAtMost(1.5)).is_met());
        assert!(!line(3.1, Goal::RatioAtMost(1.5)).is_met());
        assert!(line(0.5, Goal::AtMost(0.5)).is_met());
        assert_eq!(line(0.5, Goal::AtMost(0.25)).cells()[4..], ["at least 4 a second", "missed"]);
        assert_eq!(line(0.5, Goal::AtMost(0.25)).json()["ratio"], 0.25);
    }
}
