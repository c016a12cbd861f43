//! An MCP server over standard input and output, as agents start them, for the tests.

mod answer;

use std::{
    env,
    io::{self, BufRead, Write},
    thread,
};

use answer::{Flaw, How};

fn main() -> io::Result<()> {
    let Some(file) = env::var_os("TIDINGS") else {
        eprintln!("TIDINGS names no file");
        std::process::exit(1);
    };
    let token = env::var("TIDINGS_TOKEN").unwrap_or_default();
    let flaw = Flaw::new(&env::var("TIDINGS_FLAW").unwrap_or_default());
    let mut out = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        match flaw.of(&line) {
            Some(How::Late(time)) => thread::sleep(time),
            Some(How::Never) => continue,
            Some(How::Leaves) => return Ok(()),
            None => {}
        }
        if let Some(answer) = answer::answer(&line, file.as_ref(), &token) {
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
    Ok(())
}
