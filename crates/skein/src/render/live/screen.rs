//! The screen: permanent lines, and below them a few lines that are redrawn.
//!
//! Owns the cursor. A line never wraps when it is drawn; if the terminal has become narrower since, it is assumed to
//! have wrapped the line, as terminals do.

use std::io;

use super::text::text_width;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// The output on which a run is shown.
pub(crate) trait TerminalSurface {
    /// Writes and flushes the text.
    fn write(&mut self, text: &str) -> io::Result<()>;

    /// Returns the present size; none if there is no terminal, or its size is unknown.
    fn size(&self) -> Option<TerminalSize>;
}

/// A smaller terminal has no room for redrawn lines.
const LEAST: TerminalSize = TerminalSize { columns: 10, rows: 2 };

/// Columns that stay free, because a terminal shows `^C` at the cursor.
const FREE: u16 = 3;

/// Maximum number of bytes that are buffered.
const MOST: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct LiveScreen<S> {
    surface: S,
    /// Lines that are not yet written.
    fresh: String,
    /// The lines that were drawn last, and the size of the terminal then.
    drawn: Vec<String>,
    size: Option<TerminalSize>,
    /// The first write error that was not returned yet.
    failed: Option<io::Error>,
}

/// The room for redrawn lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenRoom {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

impl<S: TerminalSurface> LiveScreen<S> {
    pub(super) fn new(surface: S) -> LiveScreen<S> {
        LiveScreen { surface, fresh: String::new(), drawn: Vec::new(), size: None, failed: None }
    }

    /// Returns the size of the terminal if it is large enough.
    fn usable_size(&self) -> Option<TerminalSize> {
        self.surface.size().filter(|size| size.columns >= LEAST.columns && size.rows >= LEAST.rows)
    }

    /// Returns the present room.
    pub(super) fn room(&self) -> Option<ScreenRoom> {
        let size = self.usable_size()?;
        let lines = usize::from(size.rows / 3).clamp(1, 10);
        Some(ScreenRoom { columns: usize::from(size.columns - FREE), lines })
    }

    /// Prints permanent lines, each with a newline.
    pub(super) fn print_lines(&mut self, lines: &str) {
        self.fresh.push_str(lines);
        if self.fresh.len() > MOST {
            self.write_lines(Vec::new());
        }
    }

    /// Makes the drawn lines permanent, because a person typed a newline after the last.
    pub(super) fn forget_drawn(&mut self) {
        self.drawn.clear();
    }

    /// Writes the new permanent lines and draws these lines below, in place of the present ones.
    pub(super) fn draw_lines(&mut self, lines: Vec<String>) -> io::Result<()> {
        let same = self.fresh.is_empty() && self.drawn == lines && self.size == self.usable_size();
        if !same {
            self.write_lines(lines);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn write_lines(&mut self, lines: Vec<String>) {
        let mut text = self.erase_sequence();
        text.push_str(&std::mem::take(&mut self.fresh));
        text.push_str(&lines.join("\n"));
        self.drawn = lines;
        self.size = self.usable_size();
        if text.is_empty() {
            return;
        }
        if let Err(error) = self.surface.write(&text) {
            self.failed.get_or_insert(error);
        }
    }

    /// Returns the sequence that moves the cursor to the start of the drawn lines and clears from there.
    fn erase_sequence(&self) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        // A size that is too small for drawing is still a size.
        let size = self.surface.size().filter(|size| size.columns > 0).or(self.size);
        let columns = size.map_or(usize::MAX, |size| usize::from(size.columns));
        let rows = |line: &String| text_width(&strip_colours(line)).div_ceil(columns).max(1);
        match self.drawn.iter().map(rows).sum::<usize>() - 1 {
            0 => "\r\u{1b}[J".to_owned(),
            up => format!("\r\u{1b}[{up}A\u{1b}[J"),
        }
    }
}

/// Returns one of our lines without its colours.
fn strip_colours(line: &str) -> String {
    let mut shown = String::new();
    let mut parts = line.split("\u{1b}[");
    shown.push_str(parts.next().unwrap_or_default());
    parts.for_each(|part| shown.push_str(part.split_once('m').map_or("", |(_, rest)| rest)));
    shown
}
