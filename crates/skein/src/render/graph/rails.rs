//! Rails: a graph as rows of text, each edge a rail that runs down from one step to another.
//!
//! Owns the column of each rail and the characters where rails meet. Does not know what a step is.

/// A row of a drawing: its text, and the node on it, if any.
pub(super) struct RailRow {
    pub rails: String,
    /// The text of further lines of the same row.
    pub below: String,
    pub node: Option<usize>,
    /// The node above, if this row only connects it to the next node in the same column. If that node's row has further
    /// lines, they make the connection.
    pub links: Option<usize>,
}

/// Maximum number of rails side by side that can be followed by eye.
const WIDEST: usize = 24;

/// Draws nodes in an order in which every edge leads down. None if it would be too wide to read.
pub(super) fn draw_rails(order: &[usize], targets: impl Fn(usize) -> Vec<usize>) -> Option<Vec<RailRow>> {
    let mut rails = RailLayout { columns: Vec::new(), rows: Vec::new(), last: None };
    for node in order {
        let column = rails.join_rails(*node);
        let targets = targets(*node);
        // Checked before they are drawn, so that a step with many successors costs little.
        if rails.columns.len() + targets.len() > WIDEST + 1 {
            return None;
        }
        rails.place_node(column, *node, !targets.is_empty());
        rails.branch_rails(column, &targets);
    }
    Some(rails.rows)
}

struct RailLayout {
    /// The target of the rail in each column.
    columns: Vec<Option<usize>>,
    rows: Vec<RailRow>,
    /// The column and the node on the last row, if any.
    last: Option<(usize, usize)>,
}

impl RailLayout {
    /// Joins all rails that lead to a node. Returns the column of the node.
    fn join_rails(&mut self, node: usize) -> usize {
        let here: Vec<usize> = (0..self.columns.len()).filter(|i| self.columns[*i] == Some(node)).collect();
        let Some((column, others)) = here.split_first() else { return self.find_free_column(0) };
        if !others.is_empty() {
            self.draw_junction(*column, others, ['├', '┴', '╯']);
            others.iter().for_each(|other| self.columns[*other] = None);
            self.trim_columns();
        } else if let Some((_, above)) = self.last.filter(|(last, _)| last == column) {
            // Without this row, two consecutive steps would look like two unrelated steps.
            let rail = |leads: &Option<usize>| if leads.is_some() { "│ " } else { "  " };
            let rails = self.columns.iter().map(rail).collect();
            self.rows.push(RailRow { rails, below: String::new(), node: None, links: Some(above) });
        }
        *column
    }

    fn find_free_column(&mut self, from: usize) -> usize {
        let free = (from..self.columns.len()).find(|i| self.columns[*i].is_none());
        free.unwrap_or_else(|| {
            self.columns.push(None);
            self.columns.len() - 1
        })
    }

    fn place_node(&mut self, column: usize, node: usize, goes_on: bool) {
        let row = |here: &'static str| {
            let rail = |(i, leads): (usize, &Option<usize>)| match leads {
                _ if i == column => here,
                Some(_) => "│ ",
                None => "  ",
            };
            self.columns.iter().enumerate().map(rail).collect()
        };
        let (rails, below) = (row("● "), row(if goes_on { "│ " } else { "  " }));
        self.rows.push(RailRow { rails, below, node: Some(node), links: None });
        self.last = Some((column, node));
    }

    fn branch_rails(&mut self, column: usize, targets: &[usize]) {
        self.columns[column] = targets.first().copied();
        let others: Vec<usize> = targets
            .iter()
            .skip(1)
            .map(|target| {
                let at = self.find_free_column(column + 1);
                self.columns[at] = Some(*target);
                at
            })
            .collect();
        if !others.is_empty() {
            self.draw_junction(column, &others, ['├', '┬', '╮']);
        }
        self.trim_columns();
    }

    /// Removes free columns at the end.
    fn trim_columns(&mut self) {
        while self.columns.last() == Some(&None) {
            self.columns.pop();
        }
    }

    /// Draws a row in which the rails of some columns join or leave the one in `column`, across the others.
    fn draw_junction(&mut self, column: usize, others: &[usize], [start, middle, end]: [char; 3]) {
        let last = others.iter().copied().max().unwrap_or(column);
        let mut rails = String::new();
        for i in 0..self.columns.len() {
            let crossed = i > column && i < last;
            rails.push(match self.columns[i] {
                _ if i == column => start,
                _ if i == last => end,
                _ if others.contains(&i) => middle,
                Some(_) if crossed => '┼',
                Some(_) => '│',
                None if crossed => '─',
                None => ' ',
            });
            rails.push(if i >= column && i < last { '─' } else { ' ' });
        }
        self.rows.push(RailRow { rails, below: String::new(), node: None, links: None });
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(edges: &[&[usize]]) -> String {
        let order: Vec<usize> = (0..edges.len()).collect();
        let rows = draw_rails(&order, |node| edges[node].to_vec()).unwrap();
        let line = |row: &RailRow| {
            let name = row.node.map(|node| node.to_string()).unwrap_or_default();
            format!("{}{name}", row.rails).trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_diamond() {
        assert_eq!(drawn(&[&[1, 2], &[3], &[3], &[]]), "● 0\n├─╮\n● │ 1\n│ ● 2\n├─╯\n● 3");
    }

    #[test]
    fn a_rail_that_passes_others() {
        assert_eq!(drawn(&[&[1, 2, 3], &[], &[3], &[]]), "● 0\n├─┬─╮\n● │ │ 1\n  ● │ 2\n  ├─╯\n  ● 3");
    }

    #[test]
    fn what_follows_is_told_from_what_does_not() {
        assert_eq!(drawn(&[&[1], &[], &[]]), "● 0\n│\n● 1\n● 2");
        assert_eq!(drawn(&[&[1, 2], &[], &[3], &[]]), "● 0\n├─╮\n● │ 1\n  ● 2\n  │\n  ● 3");
    }

    #[test]
    fn too_many_side_by_side_are_not_drawn() {
        let all: Vec<usize> = (1..=WIDEST + 1).collect();
        assert!(draw_rails(&[0], |_| all.clone()).is_none());
    }
}
