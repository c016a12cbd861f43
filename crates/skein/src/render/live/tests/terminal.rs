//! A terminal emulator that understands only the sequences that are written: an unknown one is an error.

use std::{cell::RefCell, io, rc::Rc};

use unicode_width::UnicodeWidthChar;

use crate::render::live::{TerminalSize, TerminalSurface};

/// A row of cells. A wide character takes two, the second of which is empty.
#[derive(Default)]
struct Row {
    cells: Vec<Option<char>>,
    /// True if the row below continues the same line.
    wraps: bool,
}

pub(super) struct Screen {
    pub size: TerminalSize,
    pub writes: usize,
    pub bytes: usize,
    rows: Vec<Row>,
    row: usize,
    column: usize,
}

#[derive(Clone)]
pub(super) struct Terminal(pub Rc<RefCell<Screen>>);

impl Terminal {
    pub(super) fn new(columns: u16, rows: u16) -> Terminal {
        let size = TerminalSize { columns, rows };
        let screen = Screen { size, writes: 0, bytes: 0, rows: vec![Row::default()], row: 0, column: 0 };
        Terminal(Rc::new(RefCell::new(screen)))
    }

    /// Returns all text that was not erased, including scrolled lines.
    pub(super) fn text(&self) -> String {
        let screen = self.0.borrow();
        let mut text = String::new();
        for row in &screen.rows {
            text.extend(row.cells.iter().flatten());
            if !row.wraps {
                text.truncate(text.trim_end_matches(' ').len());
                text.push('\n');
            }
        }
        text.trim_end().to_owned() + "\n"
    }

    /// Changes the size: lines are wrapped again, and the cursor stays at its character.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let mut screen = self.0.borrow_mut();
        let (mut lines, mut line, mut cursor) = (Vec::new(), Vec::new(), (0, 0));
        for (i, row) in std::mem::take(&mut screen.rows).into_iter().enumerate() {
            if i == screen.row {
                cursor = (lines.len(), line.len() + screen.column);
            }
            line.extend(row.cells);
            if !row.wraps {
                lines.push(std::mem::take(&mut line));
            }
        }
        screen.size = TerminalSize { columns, rows };
        for (i, line) in lines.into_iter().enumerate() {
            let mut row = Row::default();
            let first = screen.rows.len();
            let most = usize::from(columns.max(1));
            let mut at = 0;
            while at < line.len() {
                let wide = line.get(at + 1).is_some_and(Option::is_none);
                if row.cells.len() + 1 + usize::from(wide) > most {
                    row.wraps = true;
                    screen.rows.push(std::mem::take(&mut row));
                }
                if i == cursor.0 && at <= cursor.1 {
                    (screen.row, screen.column) = (screen.rows.len(), row.cells.len() + 1);
                }
                row.cells.push(line[at]);
                at += 1;
                if wide {
                    row.cells.push(None);
                    at += 1;
                }
            }
            screen.rows.push(row);
            if i == cursor.0 && line.is_empty() {
                (screen.row, screen.column) = (first, 0);
            }
        }
    }
}

impl Screen {
    fn obey(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\r' => self.column = 0,
                '\n' => self.down(),
                '\u{1b}' => rest = self.escape(rest),
                c => {
                    assert!(!c.is_control(), "{c:?} in {text:?}");
                    self.put(c);
                }
            }
        }
    }

    fn escape<'a>(&mut self, rest: &'a str) -> &'a str {
        let rest = rest.strip_prefix('[').unwrap_or_else(|| panic!("an escape that is unknown: {rest:?}"));
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).expect("an escape ends");
        let number = rest[..end].parse().unwrap_or(0);
        match &rest[end..=end] {
            "m" => {}
            "A" => {
                let top = self.rows.len().saturating_sub(usize::from(self.size.rows));
                self.row = self.row.saturating_sub(number).max(top);
            }
            "J" => {
                assert_eq!(number, 0);
                self.rows.truncate(self.row + 1);
                self.rows[self.row].cells.truncate(self.column);
                self.rows[self.row].wraps = false;
            }
            other => panic!("an escape that is unknown: {other}"),
        }
        &rest[end + 1..]
    }

    fn down(&mut self) {
        self.row += 1;
        self.column = 0;
        if self.row == self.rows.len() {
            self.rows.push(Row::default());
        }
    }

    fn put(&mut self, c: char) {
        let width = c.width().unwrap_or(0);
        if width == 0 {
            return;
        }
        if self.column + width > usize::from(self.size.columns) {
            self.rows[self.row].wraps = true;
            self.down();
        }
        let cells = &mut self.rows[self.row].cells;
        cells.truncate(self.column);
        cells.resize(self.column, Some(' '));
        cells.push(Some(c));
        if width == 2 {
            cells.push(None);
        }
        self.column += width;
    }
}

impl TerminalSurface for Terminal {
    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut screen = self.0.borrow_mut();
        screen.writes += 1;
        screen.bytes += text.len();
        screen.obey(text);
        Ok(())
    }

    fn size(&self) -> Option<TerminalSize> {
        Some(self.0.borrow().size)
    }
}
