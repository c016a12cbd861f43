//! What has been written: lines that stay, and below them a few that are drawn again and again.
//!
//! Owns the cursor. A drawn line never wraps when it is drawn; when the terminal became narrower since, it is taken to
//! have been wrapped by it, as terminals do.

use std::io;

use super::text::text_width;

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// Where a run is shown.
pub(crate) trait TerminalSurface {
    /// Writes all of the text, and lets it be seen.
    fn write(&mut self, text: &str) -> io::Result<()>;

    /// The size at this moment; none where there is no terminal, or its size is not known.
    fn size(&self) -> Option<TerminalSize>;
}

/// A terminal that is smaller has no room for lines that are drawn again.
const LEAST: TerminalSize = TerminalSize { columns: 10, rows: 2 };

/// So many columns stay free, because a terminal shows `^C` where the cursor is.
const FREE: u16 = 3;

/// So many bytes wait at most until they are written.
const MOST: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct LiveScreen<S> {
    surface: S,
    /// Lines that are not yet written.
    fresh: String,
    /// The lines that were drawn last, and the size for which.
    drawn: Vec<String>,
    size: Option<TerminalSize>,
    /// The first error of a write that nobody has been told of.
    failed: Option<io::Error>,
}

/// The room for lines that are drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenRoom {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

impl<S: TerminalSurface> LiveScreen<S> {
    pub(super) fn new(surface: S) -> LiveScreen<S> {
        LiveScreen { surface, fresh: String::new(), drawn: Vec::new(), size: None, failed: None }
    }

    /// The size that counts, if there is one.
    fn usable_size(&self) -> Option<TerminalSize> {
        self.surface.size().filter(|size| size.columns >= LEAST.columns && size.rows >= LEAST.rows)
    }

    /// The room there is now.
    pub(super) fn room(&self) -> Option<ScreenRoom> {
        let size = self.usable_size()?;
        let lines = usize::from(size.rows / 3).clamp(1, 10);
        Some(ScreenRoom { columns: usize::from(size.columns - FREE), lines })
    }

    /// Lines that stay, with their ends.
    pub(super) fn print_lines(&mut self, lines: &str) {
        self.fresh.push_str(lines);
        if self.fresh.len() > MOST {
            self.write_lines(Vec::new());
        }
    }

    /// What was drawn has become lines that stay, because someone typed the end of the last.
    pub(super) fn forget_drawn(&mut self) {
        self.drawn.clear();
    }

    /// Writes what is fresh and draws these lines below it, in place of those that are there.
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

    /// Takes the cursor to where the drawn lines begin and clears from there on.
    fn erase_sequence(&self) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        // Too small to be drawn on is still a size.
        let size = self.surface.size().filter(|size| size.columns > 0).or(self.size);
        let columns = size.map_or(usize::MAX, |size| usize::from(size.columns));
        let rows = |line: &String| text_width(&strip_colours(line)).div_ceil(columns).max(1);
        match self.drawn.iter().map(rows).sum::<usize>() - 1 {
            0 => "\r\u{1b}[J".to_owned(),
            up => format!("\r\u{1b}[{up}A\u{1b}[J"),
        }
    }
}

/// A line of ours without its colours.
fn strip_colours(line: &str) -> String {
    let mut shown = String::new();
    let mut parts = line.split("\u{1b}[");
    shown.push_str(parts.next().unwrap_or_default());
    parts.for_each(|part| shown.push_str(part.split_once('m').map_or("", |(_, rest)| rest)));
    shown
}
