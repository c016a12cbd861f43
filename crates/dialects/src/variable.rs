//! Names of environment variables that a source sets: what they may be, for every format and every place.

use skein_core::{expr::ExprSpan, reserved_variables};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    yaml::YamlNode,
};

/// Checks that a source may set a variable of this name, and otherwise says why it may not.
pub(crate) fn check_variable(
    name: &str,
    node: YamlNode<'_>,
    span: ExprSpan,
    sink: &mut DiagnosticSink,
) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(starts) || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let message = format!("`{name}` cannot be the name of a variable");
        let hint = "names are letters, digits and `_`, and do not start with a digit";
        sink.push(Diagnostic::new(Code::BadName, node.source(), span, message).with_hint(hint));
        return false;
    }
    let Some(why) = reserved_variables::reservation_reason(name) else { return true };
    let message = format!("a workflow may not set `{name}`: {why}");
    let hint =
        "set it where Skein is started and let `pass_env` in skein.toml pass it on, or use another name";
    sink.push(Diagnostic::new(Code::ReservedVariable, node.source(), span, message).with_hint(hint));
    false
}
