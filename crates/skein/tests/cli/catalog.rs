//! The catalog: the definitions of a project, their files and their users; unknown names; invalid files.

use crate::session::{Folder, Session, run, skein};

/// A TOOL.md with additional fields.
pub(crate) fn tool(id: &str, more: &str) -> String {
    format!(
        "---\nname: {id}\nid: {id}\ndescription: Does {id}.\nversion: 1.0.0\ninputs: {{ type: object }}\n\
         outputs: {{ type: object }}\n{more}---\n"
    )
}

/// A DRIVER.md with these fields besides its name.
pub(crate) fn driver(id: &str, more: &str) -> String {
    format!("---\nname: {id}\nid: {id}\ndescription: Drives {id}.\nversion: 1.0.0\n{more}---\n")
}

/// A WORKFLOW.md with these steps.
pub(crate) fn workflow(id: &str, steps: &str) -> String {
    format!(
        "---\nname: {id}\nid: {id}\ndescription: Does {id}.\nversion: 1.0.0\ninputs: {{ type: object }}\n\
         outputs: {{ type: object }}\nsteps:\n{steps}---\n"
    )
}

const IOA: &str = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata:\n  name: orders\nspec:\n  description: Orders.\n  \
                   domainsInvolved: [shop]\n  timeout: 2h\n  steps:\n    - { name: draft, agent: packer, action: Pack. }\n";
const SWDL: &str = "workflow: {id: notes, name: Notes}\ncontext: {global_modules: [\"ctx:rules\"]}\nstages:\n  - id: write\n    \
                    name: Write\n    roles: {primary: \"agent:writer\", tools: [\"skill:search\"]}\n";

/// A project with a definition of every kind.
fn shop() -> Folder {
    let folder = Folder::new();
    folder
        .write(
            "skein.toml",
            "[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"true\"]\n[roles]\nlegal = [\"*\"]\n[secrets]\nKEY = { env = \"KEY\" }\n",
        )
        .write(".workflows/mail/WORKFLOW.md", workflow("mail", "  - { id: send, kind: tool, tool: mail-send@1 }\n"))
        .write(".workflows/any/WORKFLOW.md", workflow("any", "  - { id: go, kind: tool, action: \"mail:send\" }\n"))
        .write("workflows/orders.yaml", IOA)
        .write("workflows/notes.yaml", SWDL)
        .write(".tools/mail-send/TOOL.md", tool("mail-send", "implements: mail:send\n"))
        .write(".tools/mail-next/TOOL.md", tool("mail-send", "").replace("version: 1.0.0", "version: 2.0.0"))
        .write(
            ".drivers/post/DRIVER.md",
            driver("post", "kind: cli\nbin: cat\nimplements: [{ tool: mail-send, version: ^1.0.0 }]\n"),
        )
        .write(".actions/mail-send/ACTION.md", "---\nschema: action/v1\nid: mail:send\ndescription: Sends a mail.\n---\n")
        .write(
            ".routines/nightly/ROUTINE.md",
            "---\nschema: routine/v1\nid: nightly\ndescription: At night.\nschedule: { kind: interval, every: 1d }\n\
             target: { workflow: mail }\n---\n",
        )
        .write("agents/packer.md", "---\nname: packer\ndescription: Packs parcels.\n---\nYou pack.\n")
        .write(".ioa/agents/clerk.yaml", "kind: Agent\nmetadata: { name: clerk }\nspec: { domain: shop, purpose: Counts. }\n")
        .write("domains/shop.yaml", "kind: Domain\nmetadata: { name: shop }\n")
        .write(
            "governance/usual.yaml",
            "apiVersion: ioa.dev/v0.2\nkind: Governance\nmetadata: { name: usual }\nspec: { domain: shop }\n",
        )
        .write("skills/search/SKILL.md", "---\nname: search\ndescription: Finds things.\n---\n")
        .write("context/rules.md", "Be kind.\n")
        .write("collection/collection.toml", "[collection]\nname = \"shared\"\n")
        .write("collection/skills/spelling/SKILL.md", "---\nname: spelling\n---\n")
        .write("collection/agents/proof-reader.md", "---\nname: proof-reader\n---\nYou read.\n");
    folder
}

#[test]
fn everything_that_can_be_named_is_listed_with_its_place_and_its_users() {
    let folder = shop();
    let mut session = Session::within(&folder.0);
    session.skein("catalog", 0).skein("catalog tools", 0).skein("catalog tool mail-send@1", 0);
    session.skein("catalog mail-send", 0).skein("catalog agent clerk --format json", 0);
    session.skein("catalog tool mail-sned", 5).skein("catalog tol mail-send", 2).skein("catalog nobody", 5);
    session.is("catalog");
    Session::within(&Folder::new().0).skein("catalog", 0).skein("catalog drivers", 0).is("catalog-none");
}

#[test]
fn names_that_mean_nothing_are_errors_where_the_project_has_some_and_warnings_where_not() {
    let folder = shop();
    let step = |line: &str| workflow("one", &format!("  - {{ id: only, kind: tool, {line} }}\n"));
    folder.write("pin.md", step("tool: mail-send, pinned_provider: pots"));
    folder.write("major.md", step("tool: mail-send@3"));
    folder.write("alone.md", step("action: \"mail:sned\""));
    let mut session = Session::within(&folder.0);
    session.skein("validate pin.md", 3).skein("validate major.md", 3).skein("validate alone.md", 3);
    // Outside a project with such folders nothing can be checked, and one message says so.
    let bare = Folder::new();
    let many = "  - { id: first, kind: tool, tool: one, pinned_provider: x }\n  - { id: second, kind: tool, tool: two, pinned_provider: y }\n";
    bare.write("alone.md", workflow("alone", many));
    session.is("catalog-names");
    Session::within(&bare.0).skein("validate alone.md", 0).is("catalog-alone");
}

#[test]
fn files_of_the_catalog_are_checked_where_they_are_wrong() {
    let folder = shop();
    folder
        .write(".tools/bad/TOOL.md", tool("bad", "timeuot_ms: 5\n"))
        .write(".tools/twin/TOOL.md", tool("mail-send", "").replace("1.0.0", "1.4.0"))
        .write(".tools/lax/TOOL.md", tool("lax", "implements: mail:strict\n"))
        .write(
            ".actions/strict/ACTION.md",
            "---\nschema: action/v1\nid: mail:strict\ndescription: Sends.\nmutates: [external:mail]\napproval: always\n---\n",
        )
        .write(".actions/odd/ACTION.md", "---\nschema: action/v1\nid: odd\ndescription: Odd.\n---\n")
        .write(".drivers/bad/DRIVER.md", driver("bad", "kind: cli\nbin: x\nimplements: [{ tool: a, mapping: b }]\n"))
        .write(".routines/bad/ROUTINE.md", "---\nschema: routine/v1\nid: bad\nschedule: { kind: cron, crom: x }\n---\n");
    let mut session = Session::within(&folder.0);
    session.skein("validate .tools .drivers .actions .routines", 3);
    session.skein("validate .tools/bad/TOOL.md", 3).skein("catalog tool bad", 3).skein("catalog drivers", 0);
    session.is("catalog-wrong");
}

/// An agent that only a resource or a shared collection describes can run if the project maps it to a worker.
#[test]
fn agents_of_every_folder_are_known_to_runs() {
    let folder = shop();
    folder
        .write("skein.toml", "[agents.packer]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > told.txt\"]\n");
    let done = run(skein(&folder.0).args(["run", "orders"]));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let told = std::fs::read_to_string(folder.0.join("told.txt")).unwrap();
    assert!(told.starts_with("You pack."), "{told}");
    folder.write("workflows/orders.yaml", IOA.replace("agent: packer", "agent: clerk"));
    let done = run(skein(&folder.0).args(["validate", "workflows/orders.yaml"]));
    assert_eq!(done.code, 0, "{}", done.err);
    let done = run(skein(&folder.0).args(["run", "orders"]));
    assert_eq!(done.code, 5, "nobody is said to be the clerk: {}", done.err);
}
