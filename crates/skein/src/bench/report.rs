//! The report of all measurements, as a table or as JSON.

use serde_json::{Map, Value, json};

use super::measurement::{BenchMeasurement, BenchUnit};
use crate::output::Paint;

#[derive(Debug)]
pub struct BenchReport {
    /// The baselines of the machine: an id for programs, a name for people, and seconds per operation.
    pub(super) machine: Vec<(&'static str, &'static str, Option<f64>)>,
    pub(super) lines: Vec<BenchMeasurement>,
}

impl BenchReport {
    /// Returns true if all goals are met.
    pub fn is_met(&self) -> bool {
        self.lines.iter().all(BenchMeasurement::is_met)
    }

    pub fn to_json(&self) -> Value {
        let each = |(id, _, figure): &(&str, &str, Option<f64>)| {
            ((*id).to_owned(), json!(figure.map(|figure| BenchUnit::Rate.convert_figure(figure))))
        };
        let machine: Map<String, Value> = self.machine.iter().map(each).collect();
        let lines: Vec<Value> = self.lines.iter().map(BenchMeasurement::to_json).collect();
        json!({"machine": machine, "lines": lines, "met": self.is_met()})
    }

    pub fn render_text(&self, paint: Paint) -> String {
        let mut text = paint.title("This machine") + "\n";
        let width = self.machine.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or_default();
        for (_, name, figure) in &self.machine {
            let shown =
                figure.map_or("not available".to_owned(), |figure| BenchUnit::Rate.format_figure(figure));
            text.push_str(&format!("  {name:width$}  {shown:>18}\n"));
        }
        text.push_str(&format!("\n{}\n", paint.title("Skein")));
        let heads = ["", "measured", "beside", "ratio", "goal", ""].map(str::to_owned);
        let rows: Vec<[String; 6]> =
            [heads].into_iter().chain(self.lines.iter().map(BenchMeasurement::table_cells)).collect();
        let widths: Vec<usize> = (0..6)
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
            .collect();
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
