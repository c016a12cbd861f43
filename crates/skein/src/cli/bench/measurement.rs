//! One measurement: its name, its figure, the baseline, and the goal.

use serde_json::{Map, Value, json};

use crate::render::output::Paint;

/// The unit of a figure. Figures are stored as seconds or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BenchUnit {
    /// Shown as a time.
    Time,
    /// The time for one operation, shown as operations per second.
    Rate,
    Bytes,
}

/// The goal of a measurement: a minimum for a rate, a maximum for anything else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BenchGoal {
    Figure(f64),
    /// A multiple of the baseline.
    Ratio(f64),
}

#[derive(Debug)]
pub(super) struct BenchMeasurement {
    id: &'static str,
    name: String,
    figure: f64,
    unit: BenchUnit,
    /// The time that the machine itself needs for the underlying operation.
    limit: Option<(&'static str, f64)>,
    goal: BenchGoal,
}

impl BenchMeasurement {
    pub(super) fn new(
        id: &'static str,
        name: String,
        figure: f64,
        unit: BenchUnit,
        limit: Option<(&'static str, f64)>,
        goal: BenchGoal,
    ) -> BenchMeasurement {
        BenchMeasurement { id, name, figure, unit, limit, goal }
    }

    /// Returns the ratio of the figure to the baseline. For rates, it is the ratio of the rates, not of the times.
    fn ratio(&self) -> Option<f64> {
        self.limit.map(|(_, limit)| self.unit.convert_figure(self.figure) / self.unit.convert_figure(limit))
    }

    pub(super) fn is_met(&self) -> bool {
        let (is, most) = match self.goal {
            BenchGoal::Figure(goal) => (Some(self.unit.convert_figure(self.figure)), self.unit.convert_figure(goal)),
            BenchGoal::Ratio(goal) => (self.ratio(), goal),
        };
        is.is_some_and(|is| if self.unit == BenchUnit::Rate { is >= most } else { is <= most })
    }

    /// Returns the cells of the table: name, figure, baseline, ratio, goal, and met or missed.
    pub(super) fn table_cells(&self) -> [String; 6] {
        let limit = self.limit.map(|(of, limit)| format!("{of} {}", self.unit.format_figure(limit)));
        let ratio = self.ratio().map(|ratio| format!("{ratio:.2}"));
        let bound = if self.unit == BenchUnit::Rate { "at least" } else { "at most" };
        let goal = match self.goal {
            BenchGoal::Figure(goal) => format!("{bound} {}", self.unit.format_figure(goal)),
            BenchGoal::Ratio(goal) => format!("ratio {bound} {goal}"),
        };
        let met = if self.is_met() { "met" } else { "missed" };
        let (limit, ratio) = (limit.unwrap_or_default(), ratio.unwrap_or_default());
        [self.name.clone(), self.unit.format_figure(self.figure), limit, ratio, goal, met.to_owned()]
    }

    pub(super) fn to_json(&self) -> Value {
        let figure = |figure: f64| self.unit.convert_figure(figure);
        let limit = self.limit.map(|(of, limit)| json!({"of": of, "figure": figure(limit)}));
        let bound = if self.unit == BenchUnit::Rate { "at_least" } else { "at_most" };
        let goal = match self.goal {
            BenchGoal::Figure(goal) => json!({"of": "figure", bound: figure(goal)}),
            BenchGoal::Ratio(goal) => json!({"of": "ratio", bound: goal}),
        };
        json!({"id": self.id, "name": self.name, "figure": figure(self.figure), "unit": self.unit.label(),
               "limit": limit, "ratio": self.ratio(), "goal": goal, "met": self.is_met()})
    }
}

impl BenchUnit {
    /// Formats a figure for people.
    pub(super) fn format_figure(self, figure: f64) -> String {
        match self {
            BenchUnit::Time if figure < 0.001 => format!("{:.0} µs", figure * 1e6),
            BenchUnit::Time if figure < 1.0 => format!("{:.1} ms", figure * 1e3),
            BenchUnit::Time => format!("{figure:.2} s"),
            BenchUnit::Rate => format!("{} a second", group_thousands(1.0 / figure)),
            BenchUnit::Bytes => format!("{:.1} MB", figure / 1e6),
        }
    }

    /// Converts a figure for programs: milliseconds, operations per second, megabytes.
    pub(super) fn convert_figure(self, figure: f64) -> f64 {
        match self {
            BenchUnit::Time => figure * 1e3,
            BenchUnit::Rate => 1.0 / figure,
            BenchUnit::Bytes => figure / 1e6,
        }
    }

    fn label(self) -> &'static str {
        match self {
            BenchUnit::Time => "ms",
            BenchUnit::Rate => "per_second",
            BenchUnit::Bytes => "MB",
        }
    }
}

/// Formats a whole number with separators for thousands.
fn group_thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[derive(Debug)]
pub(crate) struct BenchReport {
    /// The baselines of the machine: an id for programs, a name for people, and seconds per operation.
    pub(super) machine: Vec<(&'static str, &'static str, Option<f64>)>,
    pub(super) lines: Vec<BenchMeasurement>,
}

impl BenchReport {
    /// Returns true if all goals are met.
    pub(crate) fn is_met(&self) -> bool {
        self.lines.iter().all(BenchMeasurement::is_met)
    }

    pub(crate) fn to_json(&self) -> Value {
        let each = |(id, _, figure): &(&str, &str, Option<f64>)| {
            ((*id).to_owned(), json!(figure.map(|figure| BenchUnit::Rate.convert_figure(figure))))
        };
        let machine: Map<String, Value> = self.machine.iter().map(each).collect();
        let lines: Vec<Value> = self.lines.iter().map(BenchMeasurement::to_json).collect();
        json!({"machine": machine, "lines": lines, "met": self.is_met()})
    }

    pub(crate) fn render_text(&self, paint: Paint) -> String {
        let mut text = paint.title("This machine") + "\n";
        let width = self.machine.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or_default();
        for (_, name, figure) in &self.machine {
            let shown = figure.map_or("not available".to_owned(), |figure| BenchUnit::Rate.format_figure(figure));
            text.push_str(&format!("  {name:width$}  {shown:>18}\n"));
        }
        text.push_str(&format!("\n{}\n", paint.title("Skein")));
        let heads = ["", "measured", "beside", "ratio", "goal", ""].map(str::to_owned);
        let rows: Vec<[String; 6]> =
            [heads].into_iter().chain(self.lines.iter().map(BenchMeasurement::table_cells)).collect();
        let widths: Vec<usize> =
            (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()).collect();
        for row in &rows {
            let [name, figure, limit, ratio, goal, met] = row;
            let met = match met.as_str() {
                "missed" => paint.warning(met),
                _ => met.clone(),
            };
            let line = format!(
                "  {name:0$}  {figure:>1$}  {limit:2$}  {ratio:>3$}  {goal:4$}  {met}",
                widths[0], widths[1], widths[2], widths[3], widths[4]
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_as_people_say_them() {
        assert_eq!(BenchUnit::Time.format_figure(0.000_312), "312 µs");
        assert_eq!(BenchUnit::Time.format_figure(0.0153), "15.3 ms");
        assert_eq!(BenchUnit::Time.format_figure(1.5), "1.50 s");
        assert_eq!(BenchUnit::Rate.format_figure(1.0 / 54_321.4), "54,321 a second");
        assert_eq!(BenchUnit::Rate.format_figure(0.01), "100 a second");
        assert_eq!(BenchUnit::Bytes.format_figure(12_340_000.0), "12.3 MB");
    }

    #[test]
    fn a_goal_is_about_the_figure_or_about_the_ratio() {
        let line = |unit, figure, goal| BenchMeasurement::new("x", "x".into(), figure, unit, Some(("y", 2.0)), goal);
        assert!(line(BenchUnit::Time, 3.0, BenchGoal::Ratio(1.5)).is_met());
        assert!(!line(BenchUnit::Time, 3.1, BenchGoal::Ratio(1.5)).is_met());
        assert!(line(BenchUnit::Time, 0.5, BenchGoal::Figure(0.5)).is_met());
        // Twice as fast as the baseline.
        assert!(line(BenchUnit::Rate, 1.0, BenchGoal::Ratio(2.0)).is_met());
        assert!(!line(BenchUnit::Rate, 1.1, BenchGoal::Ratio(2.0)).is_met());
        let missed = line(BenchUnit::Rate, 0.5, BenchGoal::Figure(0.25));
        assert_eq!(missed.table_cells()[3..], ["4.00", "at least 4 a second", "missed"]);
        assert_eq!(missed.to_json()["ratio"], 4.0);
    }
}
