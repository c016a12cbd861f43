//! All limits of Skein.
//!
//! Owns the numbers and nothing else. In a pair `X_WARN`, `X`, the first is a soft limit that causes a warning, and the
//! second a hard limit at which the request is refused. Sizes are in bytes, times in milliseconds.

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
/// Maximum nesting of parallel, each and loop scopes.
pub const NESTING: usize = 16;

// Runs.
pub const ITEMS: usize = 10_000;
pub const PARALLELISM_DEFAULT: u32 = 4;
pub const ITERATIONS_WARN: u32 = 50;
pub const ITERATIONS: u32 = 1_000;
pub const ATTEMPTS_WARN: u32 = 10;
pub const ATTEMPTS: u32 = 100;
/// Fallback agents that one step may name.
pub const AGENTS: usize = 16;
/// Interruptions of one step after which a person is asked.
pub const INTERRUPTIONS: u32 = 3;
/// Consecutive checks without a decision after which the step fails.
pub const UNDECIDED_CHECKS: u32 = 2;
/// Signals that are kept for a wait that is not open yet.
pub const KEPT_SIGNALS: usize = 100;
/// Tampering attempts that are recorded in the journal of a run.
pub const TAMPERS: u32 = 100;
pub const EVENTS_WARN: u64 = 100_000;
pub const EVENTS: u64 = 1_000_000;
pub const VALUE_BYTES: usize = 2 * MIB;
/// JSON levels of a value. Otherwise objects built around earlier results could grow, iteration by iteration, into a
/// value that can be written but not read back.
pub const VALUE_DEPTH: usize = 100;
/// Steps that the check of one value against one schema may take, each of at most about a microsecond.
pub const SCHEMA_STEPS: u64 = 1_000_000;
/// Subschemas that may apply to one value, their nesting, and the `$id`s of a schema.
pub const SCHEMA_EXPANSION: usize = 10_000;
pub const SCHEMA_LEVELS: usize = 48;
pub const SCHEMA_RESOURCES: usize = 64;
/// Subschemas that a check may be inside at once: they share the stack of a thread.
pub const SCHEMA_STACK: usize = 1_500;
/// States that all regular expressions of a schema may compile to, and the backtracks of one match.
pub const SCHEMA_PATTERN_STATES: u64 = 200_000;
pub const SCHEMA_BACKTRACKS: usize = 10_000;
/// Reasons and fingerprints of one check: their number, and the length of each.
pub const CHECK_NOTES: usize = 200;
pub const CHECK_NOTE_CHARS: usize = 240;
/// The end of a check's output that the next iteration receives.
pub const CHECK_OUTPUT_BYTES: usize = 4 * 1024;
/// Approvals that may be required for one decision.
pub const QUORUM: u32 = 100;
/// Pieces of evidence of a step; the length of the description and of the finding of each.
pub const EVIDENCE: usize = 32;
pub const PROOF_CHARS: usize = 400;
pub const FOUND_CHARS: usize = 2_000;

// Files that are compared with their earlier state: names that are visited, bytes that are read.
pub const SURVEY_NAMES: usize = 200_000;
pub const SURVEY_BYTES: u64 = GIB;
/// Names in a workspace that are visited to find its git repositories.
pub const REPOSITORY_NAMES: usize = 1_000_000;

// Expressions.
/// Bytes of one condition, or of the inside of one `${{ }}`.
pub const EXPRESSION_BYTES: usize = 4 * KIB;
/// Nesting of operators, calls and brackets. A single leaf has depth 1.
pub const EXPRESSION_DEPTH: usize = 32;
/// Units of work that one evaluation may spend. One unit pays for visiting a node, for 256 bytes of text compared,
/// searched, joined or written, for 16 elements visited, or for 8 values parsed from JSON.
pub const EXPRESSION_FUEL: u64 = 10_000;
/// Bytes of the compact JSON of a result, and of any intermediate text.
pub const EXPRESSION_RESULT: usize = MIB;
/// All the text around and inside the expressions of one string. Instructions are templates too.
pub const EXPRESSION_TEXT: usize = MIB;
/// An expression that could never be evaluated within the fuel is refused when it is parsed.
pub const EXPRESSION_NODES: usize = EXPRESSION_FUEL as usize;
/// JSON levels of an encoded expression, and of a stored definition. Parsers allow 128; the rest is for the document
/// around it.
pub const EXPRESSION_WIRE_DEPTH: usize = 112;
pub const DEFINITION_DEPTH: usize = 126;

// Time.
pub const TIMEOUT_WARN: u64 = 30 * DAY;
pub const TIMEOUT: u64 = 366 * DAY;
pub const BACKOFF: u64 = 24 * HOUR;
pub const STOP_GRACE_DEFAULT: u64 = 10 * SECOND;
/// Maximum duration of a hook.
pub const HOOK: u64 = 5 * MINUTE;
/// Maximum size of a program inside the project that a run starts.
pub const PROGRAM_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum duration of a notification about a run.
pub const NOTIFY: u64 = 30 * SECOND;
/// Maximum time for git to list the changed files.
pub const GIT: u64 = MINUTE;
/// Maximum duration of an evidence command, if the step itself has no shorter timeout.
pub const PROOF: u64 = 30 * MINUTE;
/// Maximum time for git to save or restore the state of a workspace.
pub const SNAPSHOT: u64 = 10 * MINUTE;

// Coding agents.
/// Default time until an agent first prints something, and default time without output.
pub const AGENT_START: u64 = 3 * MINUTE;
pub const AGENT_IDLE: u64 = 15 * MINUTE;
/// Default and maximum time for a tool server to list its tools.
pub const SERVER_START: u64 = MINUTE;
pub const SERVER_START_MOST: u64 = 30 * MINUTE;
/// The wait for an account limit that does not say when it ends.
pub const ACCOUNT_WAIT: u64 = 5 * MINUTE;
/// The delay between steps that resume after waiting for the same account.
pub const ACCOUNT_APART: u64 = 1_000;
/// A limit that ends within this time is retried even by a step that does not wait for limits.
pub const ACCOUNT_SOON: u64 = MINUTE;
/// Maximum size of one event that an agent prints. It may contain a tool's output, which agents shorten themselves.
pub const AGENT_EVENT_BYTES: usize = 8 * MIB;

// Workers and their files.
/// Maximum size of a checker's decision.
pub const DECISION_BYTES: u64 = 64 * 1024;
pub const WORKERS_DEFAULT: u32 = 8;
pub const WORKERS: u32 = 64;
pub const RUNS: usize = 1_000;
pub const ARTIFACT_BYTES: u64 = GIB;
pub const ARTIFACTS_BYTES: u64 = 10 * GIB;
/// Files and folders of one artifact, and the depth of its folders.
pub const ARTIFACT_FILES: usize = 100_000;
pub const ARTIFACT_DEPTH: usize = 128;
pub const LOG_BYTES: usize = 64 * MIB;
/// Maximum snapshot of a workspace that is not a repository, from which it can be restored.
pub const SNAPSHOT_FILES: usize = 50_000;
pub const SNAPSHOT_BYTES: u64 = 2 * GIB;
/// The largest file whose changes are shown, and the amount of an attempt's changes that is kept.
pub const CHANGED_FILE_BYTES: u64 = 16 * 1024 * 1024;
pub const CHANGES_BYTES: u64 = 4 * 1024 * 1024;
/// A shorter secret would match unrelated text by chance.
pub const SECRET_BYTES_LEAST: usize = 8;
pub const SECRET_BYTES: usize = 16 * KIB;
/// All forms of all secrets that are searched for in written data.
pub const SECRET_FORMS_BYTES: usize = 4 * MIB;

// Context for agents.
/// Memory entries that are kept.
pub const MEMORIES: usize = 10_000;
pub const MEMORY_BYTES: usize = 4 * KIB;

// The network.
/// Default timeout of a call to a server, as in AIP-14.
pub const TOOL_CALL: u64 = 30 * SECOND;
/// Maximum delay before a retry that a tool can request.
pub const RETRY_AFTER: u64 = HOUR;
pub const WEBHOOK_BYTES: usize = MIB;

// Triggers.
pub const TRIGGER_MAX_ACTIVE_DEFAULT: u32 = 10;
/// Runs that may start in a minute.
pub const TRIGGER_RATE_DEFAULT: u32 = 60;
/// Consecutive failures after which a schedule is paused.
pub const TRIGGER_PAUSE_AFTER_DEFAULT: u32 = 5;
/// Consecutive overlaps after which the operator is warned.
pub const TRIGGER_OVERLAPS_WARN: u32 = 3;
/// Fires of a trigger that may wait.
pub const TRIGGER_QUEUE: usize = 100;
/// Missed slots that are caught up, and slots of one backfill.
pub const TRIGGER_CATCHUP: usize = 100;
pub const TRIGGER_BACKFILL: usize = 100;
/// Triggers in a chain of runs that start one another.
pub const TRIGGER_CHAIN: usize = 8;
/// Fires that the state of a trigger remembers, against duplicates. The store remembers all.
pub const TRIGGER_RECENT: usize = 256;
/// Slots of a range that are counted; of a longer one, only the ends are exact.
pub const TRIGGER_COUNTED_SLOTS: u32 = 10_000;
pub const TRIGGER_GRACE_DEFAULT: u64 = MINUTE;
pub const TRIGGER_CATCHUP_WINDOW_DEFAULT: u64 = DAY;
pub const TRIGGER_INTERVAL_LEAST: u64 = 10 * SECOND;
pub const TRIGGER_JITTER: u64 = HOUR;
/// The attempts of a routine, by AIP-41.
pub const TRIGGER_ATTEMPTS: u32 = 10;
/// The `COUNT` of a recurrence rule. Its occurrences are counted from the first.
pub const TRIGGER_RULE_COUNT: u32 = 10_000;
/// The longest text of a schedule.
pub const TRIGGER_SCHEDULE_BYTES: usize = 1_000;
