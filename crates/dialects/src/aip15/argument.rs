//! Arguments of a driver's program: text, in which `${input.x}` stands for a value of the call.
//!
//! Owns the form of an argument. A value fills a part of one argument; it is never split and never a command.

/// One argument, in pieces that are put together.
pub type Argument = Vec<Piece>;

/// A piece of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// A value of the input, by its path, and what stands for one that is not given.
    Input {
        path: Vec<String>,
        default: Option<String>,
    },
}

/// Reads an argument. Err: what is wrong with it.
pub(super) fn argument(text: &str) -> Result<Argument, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, left)) = after.split_once('}') else {
            return Err("`${` is never closed".to_owned());
        };
        push_text(&mut pieces, before);
        pieces.push(reference(inside.trim())?);
        rest = left;
    }
    push_text(&mut pieces, rest);
    Ok(pieces)
}

fn push_text(pieces: &mut Argument, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// `input.a.b`, then perhaps `| default('text')`.
fn reference(inside: &str) -> Result<Piece, String> {
    let (path, default) = match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(default_of(default.trim())?)),
        None => (inside, None),
    };
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    match names.split_first() {
        Some((first, path)) if first == "input" && !path.is_empty() && path.iter().all(|n| !n.is_empty()) => {
            Ok(Piece::Input { path: path.to_vec(), default })
        }
        _ => Err(format!("`${{{inside}}}` names no input; write such as `${{input.name}}`")),
    }
}

fn default_of(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix("default(").and_then(|rest| rest.strip_suffix(')')).map(str::trim);
    let quoted = inner.and_then(|inner| {
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        inner.strip_prefix(quote)?.strip_suffix(quote)
    });
    quoted.map(str::to_owned).ok_or_else(|| format!("`{text}` is not such as `default('main')`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &[&str], default: Option<&str>) -> Piece {
        let path = path.iter().map(ToString::to_string).collect();
        Piece::Input { path, default: default.map(str::to_owned) }
    }

    #[test]
    fn values_fill_parts_of_an_argument() {
        assert_eq!(argument("plain"), Ok(vec![Piece::Text("plain".into())]));
        assert_eq!(
            argument("--ref=${input.ref | default('main')}.git"),
            Ok(vec![Piece::Text("--ref=".into()), input(&["ref"], Some("main")), Piece::Text(".git".into())])
        );
        assert_eq!(argument("${ input.a.b }"), Ok(vec![input(&["a", "b"], None)]));
        assert_eq!(argument("$HOME costs $5"), Ok(vec![Piece::Text("$HOME costs $5".into())]));
        for wrong in ["${input.a", "${secret.a}", "${input}", "${input.a | upper}", "${input.a|default(x)}"] {
            assert!(argument(wrong).is_err(), "{wrong}");
        }
    }
}
