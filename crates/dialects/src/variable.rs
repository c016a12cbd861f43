//! Checks the names of environment variables that a source sets, for every format.

use skein_core::{expr::ExprSpan, reserved_variables};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    yaml::YamlNode,
};

/// Checks that a source may set a variable of this name. Otherwise reports the reason.
pub(crate) fn check_variable(
    name: &str,
    node: YamlNode<'_>,
    span: ExprSpan,
    sink: &mut DiagnosticSink,
) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(starts) || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let message = format!("`{name}` cannot be the name of an environment variable");
        let hint = "names are letters, digits and `_`, and do not start with a digit";
        sink.push(Diagnostic::new(Code::BadName, node.source(), span, message).with_hint(hint));
        return false;
    }
    let Some(why) = reserved_variables::reservation_reason(name) else { return true };
    let message = format!("a workflow may not set `{name}`: {why}");
    let hint =
        "set it in the environment of Skein and list it in `pass_env` of skein.toml, or use another name";
    sink.push(Diagnostic::new(Code::ReservedVariable, node.source(), span, message).with_hint(hint));
    false
}
