//! Every limit Skein has, in one place.
//!
//! Owns the numbers and nothing else. A pair `X_WARN`, `X` is a soft limit, at which a person is told, and a hard
//! one, at which the request is refused. Sizes are bytes, times are milliseconds.

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const GIB: u64 = 1024 * 1024 * 1024;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

// Sources.
pub const SOURCE_BYTES_WARN: usize = 256 * KIB;
pub const SOURCE_BYTES: usize = MIB;
pub const YAML_DEPTH: usize = 64;
pub const YAML_NODES: usize = 100_000;

// Names.
pub const ID_BYTES: usize = 255;

// Plans.
pub const STEPS_WARN: usize = 500;
pub const STEPS: usize = 10_000;
pub const EDGES_WARN: usize = 5_000;
pub const EDGES: usize = 100_000;
pub const CALL_DEPTH_WARN: usize = 4;
pub const CALL_DEPTH: usize = 8;
/// Parallel, each and loop scopes inside one another.
pub const NESTING: usize = 16;

// Runs.
pub const ITEMS_WARN: usize = 100;
pub const ITEMS: usize = 10_000;
pub const PARALLELISM_DEFAULT: u32 = 4;
pub const ITERATIONS_WARN: u32 = 50;
pub const ITERATIONS: u32 = 1_000;
pub const ATTEMPTS_WARN: u32 = 10;
pub const ATTEMPTS: u32 = 100;
/// Agents that one step may name to take over from its own.
pub const AGENTS: usize = 16;
/// After this many interruptions of one step a person is asked.
pub const INTERRUPTIONS: u32 = 3;
/// After this many checks in a row that decided nothing, the step fails.
pub const UNDECIDED_CHECKS: u32 = 2;
/// Signals that are kept for a wait that has not opened yet.
pub const KEPT_SIGNALS: usize = 100;
/// Tries to say what one may not, of which the journal of a run takes note.
pub const TAMPERS: u32 = 100;
pub const EVENTS_WARN: u64 = 100_000;
pub const EVENTS: u64 = 1_000_000;
pub const VALUE_BYTES_WARN: usize = 256 * KIB;
pub const VALUE_BYTES: usize = 2 * MIB;
/// JSON levels of a value.
pub const VALUE_DEPTH: usize = 100;
/// Steps that the check of one value against one schema may take, each of about a microsecond at most.
pub const SCHEMA_STEPS: u64 = 1_000_000;
/// Subschemas that may apply to one value, how deep inside one another, and the `$id`s of a schema.
pub const SCHEMA_EXPANSION: usize = 10_000;
pub const SCHEMA_LEVELS: usize = 48;
pub const SCHEMA_RESOURCES: usize = 64;
/// Subschemas that a check may be inside of at once: they share the stack of a thread.
pub const SCHEMA_STACK: usize = 1_500;
/// States that all regular expressions of a schema may compile to, and the backtracks of one match.
pub const SCHEMA_PATTERN_STATES: u64 = 200_000;
pub const SCHEMA_BACKTRACKS: usize = 10_000;
/// Reasons and fingerprints of one check: how many, and how long each.
pub const CHECK_NOTES: usize = 200;
pub const CHECK_NOTE_CHARS: usize = 240;
/// The end of a check's output that the next iteration is told.
pub const CHECK_OUTPUT_BYTES: usize = 4 * 1024;
/// People who may have to approve one thing.
pub const QUORUM: u32 = 100;
/// Pieces of evidence of a step; how long what each says and what was found may be.
pub const EVIDENCE: usize = 32;
pub const PROOF_CHARS: usize = 400;
pub const FOUND_CHARS: usize = 2_000;

// Files that are compared with how they were: names that are looked at, bytes that are read.
pub const SURVEY_NAMES: usize = 200_000;
pub const SURVEY_BYTES: u64 = GIB;
/// Names in a workspace that are looked at to find the git repositories in it.
pub const REPOSITORY_NAMES: usize = 1_000_000;

// Expressions.
pub const EXPRESSION_BYTES: usize = 4 * KIB;
pub const EXPRESSION_DEPTH: usize = 32;
pub const EXPRESSION_FUEL: u64 = 10_000;
pub const EXPRESSION_RESULT: usize = MIB;
/// All the text around and inside the expressions of one string.
pub const EXPRESSION_TEXT: usize = MIB;
/// What could never be visited within the fuel is refused when it is read.
pub const EXPRESSION_NODES: usize = EXPRESSION_FUEL as usize;
/// JSON levels of an encoded expression, and of a definition as it is stored. Readers allow 128; the rest is for
/// whatever is around it.
pub const EXPRESSION_WIRE_DEPTH: usize = 112;
pub const DEFINITION_DEPTH: usize = 126;

// Time.
pub const TIMEOUT_WARN: u64 = 30 * DAY;
pub const TIMEOUT: u64 = 366 * DAY;
pub const BACKOFF: u64 = 24 * HOUR;
pub const STOP_GRACE_DEFAULT: u64 = 10 * SECOND;
pub const STOP_GRACE: u64 = 5 * MINUTE;
/// How long a hook may take.
pub const HOOK: u64 = 5 * MINUTE;
/// The size of a program inside of a project that a run starts.
pub const PROGRAM_BYTES: u64 = 256 * 1024 * 1024;
/// How long it may take to tell people of a run.
pub const NOTIFY: u64 = 30 * SECOND;
/// How long git may take to say which files have changed.
pub const GIT: u64 = MINUTE;
/// How long a command may take that proves something, if the step itself has no shorter time.
pub const PROOF: u64 = 30 * MINUTE;
/// How long git may take to keep or bring back the state of a workspace.
pub const SNAPSHOT: u64 = 10 * MINUTE;

// Coding agents.
/// How long one may take until it first prints something, and be silent, where the source says nothing.
pub const AGENT_START: u64 = 3 * MINUTE;
pub const AGENT_IDLE: u64 = 15 * MINUTE;
/// How long a server of tools may take until it has said which it has, where the project says nothing, and at most.
pub const SERVER_START: u64 = MINUTE;
pub const SERVER_START_MOST: u64 = 30 * MINUTE;
/// How long a limit of an account is waited for that does not say when it ends.
pub const ACCOUNT_WAIT: u64 = 5 * MINUTE;
/// How far apart those go on that waited for the same account.
pub const ACCOUNT_APART: u64 = 1_000;
/// A limit that ends so soon is tried again also by a step that does not wait for limits.
pub const ACCOUNT_SOON: u64 = MINUTE;
/// One event that it prints. What a tool printed may stand in one, and agents cut that themselves.
pub const AGENT_EVENT_BYTES: usize = 8 * MIB;

// Workers and their files.
/// What a checker's decision may fill.
pub const DECISION_BYTES: u64 = 64 * 1024;
pub const WORKERS_DEFAULT: u32 = 8;
pub const WORKERS: u32 = 64;
pub const RUNS: usize = 1_000;
pub const ARTIFACT_BYTES_WARN: u64 = 100 * 1024 * 1024;
pub const ARTIFACT_BYTES: u64 = GIB;
pub const ARTIFACTS_BYTES: u64 = 10 * GIB;
/// Files and folders of one artifact, and how deep its folders go.
pub const ARTIFACT_FILES: usize = 100_000;
pub const ARTIFACT_DEPTH: usize = 128;
pub const LOG_BYTES: usize = 64 * MIB;
/// What is kept of a workspace that is no repository, so that it can be put back.
pub const SNAPSHOT_FILES: usize = 50_000;
pub const SNAPSHOT_BYTES: u64 = 2 * GIB;
/// The largest file of which changes are shown, and how much of the changes of an attempt is kept.
pub const CHANGED_FILE_BYTES: u64 = 16 * 1024 * 1024;
pub const CHANGES_BYTES: u64 = 4 * 1024 * 1024;
/// A shorter secret would be found by chance in text that has nothing to do with it.
pub const SECRET_BYTES_LEAST: usize = 8;
pub const SECRET_BYTES: usize = 16 * KIB;
/// All forms of all secrets that are looked for in what is written.
pub const SECRET_FORMS_BYTES: usize = 4 * MIB;

// What agents are told.
/// Memories that are kept.
pub const MEMORIES: usize = 10_000;
pub const MEMORY_BYTES: usize = 4 * KIB;

// The network.
/// How long the call of a server may take where nobody says, as AIP-14 has it.
pub const TOOL_CALL: u64 = 30 * SECOND;
/// The longest that a tool is left alone because it asks for that.
pub const RETRY_AFTER: u64 = HOUR;
pub const WEBHOOK_BYTES: usize = MIB;
pub const WEBHOOK_SKEW: u64 = 5 * MINUTE;
pub const WEBHOOK_DEDUP: u64 = 24 * HOUR;
pub const API_PAGE: usize = 1_000;
pub const API_EVENTS: usize = 1_000;
