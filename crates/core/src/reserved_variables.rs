//! Environment variables that a workflow may not set: each of them makes programs load, run or trust something other
//! than what the step names.
//!
//! Owns the list. Does not judge values that the person's own configuration passes on.

/// Names, or prefixes if they end with `*`, and their effect on programs.
const RESERVED: &[(&[&str], &str)] = &[
    (
        &["LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH"],
        "the system's loader reads it and loads other code into every program",
    ),
    (
        &["BASH_ENV", "ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "IFS", "ZDOTDIR"],
        "shells read it when they start, and run its contents",
    ),
    (&["PATH", "HOME", "CDPATH"], "it decides which programs and settings are found"),
    (
        &[
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PYTHONUSERBASE",
            "PYTHONEXECUTABLE",
            "PYTHONPLATLIBDIR",
            "PYTHONBREAKPOINT",
            "PYTHONWARNINGS",
            "PYTHONINSPECT",
            "PYTHONPYCACHEPREFIX",
            "NODE_OPTIONS",
            "NODE_PATH",
            "NODE_REPL_EXTERNAL_MODULE",
            "PERL5OPT",
            "PERL5LIB",
            "PERL5DB",
            "PERLLIB",
            "RUBYOPT",
            "RUBYLIB",
            "GEM_HOME",
            "GEM_PATH",
            "BUNDLE_GEMFILE",
            "JAVA_TOOL_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "_JAVA_OPTIONS",
            "CLASSPATH",
            "LUA_INIT*",
            "LUA_PATH*",
            "LUA_CPATH*",
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "DOTNET_STARTUP_HOOKS",
            "DOTNET_ADDITIONAL_DEPS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "GOFLAGS",
            "NPM_CONFIG_*",
        ],
        "an interpreter or a compiler reads it when it starts, and loads other code",
    ),
    (
        &["EDITOR", "VISUAL", "PAGER", "BROWSER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "SSH_ASKPASS", "SUDO_ASKPASS"],
        "other programs start the program that it names",
    ),
    (&["GIT_*", "SSH_AUTH_SOCK"], "git reads it, and runs other programs or works on another repository"),
    (
        &[
            "ANTHROPIC_*",
            "CLAUDE_*",
            "OPENAI_*",
            "AZURE_OPENAI_*",
            "CODEX_*",
            "OPENCODE_*",
            "GEMINI_*",
            "GOOGLE_GEMINI_*",
            "OPENROUTER_*",
            "AWS_BEDROCK_*",
            "AWS_ENDPOINT_URL*",
        ],
        "a coding agent reads it, and sends its data to another service or with another login",
    ),
    (
        &[
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "NODE_TLS_REJECT_UNAUTHORIZED",
        ],
        "it makes programs send their requests through another server, or trust one",
    ),
    (&["SKEIN_*"], "Skein sets it itself"),
];

/// Variables of git without such an effect; most only identify the author of commits.
const HARMLESS: &[&str] = &[
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_TERMINAL_PROMPT",
];

/// Returns the reason why a workflow may not set a variable; none if it may. Some programs also read lowercase names.
pub fn reservation_reason(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    if HARMLESS.contains(&name.as_str()) {
        return None;
    }
    let means = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    };
    RESERVED.iter().find(|(names, _)| names.iter().any(means)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_widen_are_reserved_and_others_are_not() {
        for name in ["LD_PRELOAD", "BASH_ENV", "ANTHROPIC_BASE_URL", "GIT_SSH_COMMAND", "http_proxy", "NODE_OPTIONS"] {
            assert!(reservation_reason(name).is_some(), "{name}");
        }
        for name in ["RELEASE", "LANG", "GIT_AUTHOR_NAME", "PYTHONUNBUFFERED", "ENVIRONMENT", "MY_PATH", "CI"] {
            assert_eq!(reservation_reason(name), None, "{name}");
        }
    }
}
