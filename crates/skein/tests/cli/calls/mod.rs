//! Calls between formats: a workflow of each of the four calls one of each of the four, with inputs and outputs.
//! Contract errors are reported with both sides, and events of a run reach through a call.

mod border;
mod matrix;
mod through;

use crate::{
    catalog::{driver, tool},
    kept::Project,
};

/// The formats, by the names of their files here.
pub(crate) const FORMATS: [&str; 4] = ["agentcore", "aip15", "ioa", "swdl"];

/// Reads `who` from its inputs and greets.
const GREET: &str = "cat >/dev/null\nwho=$(grep -o '\"who\": *\"[^\"]*\"' \"$SKEIN_INPUTS\" | sed 's/.*: *\"//; s/\"$//')\n\
    echo \"greeting=hello, $who\" > \"$SKEIN_OUTPUT\"\n";

/// A workflow of a format that takes `who` and returns `greeting`, made by a step `greet`.
pub(crate) fn leaf(format: &str) -> (String, String) {
    let contract = "{type: object, properties: {who: {type: string}}, required: [who], additionalProperties: false}";
    match format {
        "agentcore" => (
            "workflows/agentcore.yaml".to_owned(),
            format!(
                "name: agentcore\nversion: \"1\"\ntimeout: 5m\nx-skein:\n  input: {contract}\n  \
                 output: {{greeting: \"${{{{ steps.greet.output.greeting }}}}\"}}\nsteps:\n  greet:\n    worker: CUSTOM\n    \
                 capabilities: [READ]\n    instructions: sh greet.sh < /dev/null\n    \
                 x-skein: {{input: {{who: \"${{{{ input.who }}}}\"}}}}\n"
            ),
        ),
        "aip15" => (
            "workflows/aip15/WORKFLOW.md".to_owned(),
            format!(
                "---\nname: Leaf\nid: aip15\ndescription: Greets.\nversion: 1.0.0\ninputs: {contract}\n\
                 outputs: {{type: object, properties: {{greeting: {{type: string}}}}, required: [greeting]}}\nsteps:\n  \
                 - {{id: greet, kind: tool, tool: text.template, \
                 inputs: {{template: \"hello, {{{{who}}}}\", values: {{who: $input.who}}}}}}\n\
                 result: {{greeting: $steps.greet.text}}\n---\n"
            ),
        ),
        "ioa" => (
            "workflows/ioa.yaml".to_owned(),
            format!(
                "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: ioa}}\nspec:\n  description: Greets.\n  \
                 domainsInvolved: [all]\n  timeout: 5m\n  x-skein:\n    input: {contract}\n    \
                 output: {{greeting: \"${{{{ steps.greet.output.greeting }}}}\"}}\n  steps:\n    \
                 - {{name: greet, agent: greeter, action: Greet., \
                 x-skein: {{input: {{who: \"${{{{ payload.who }}}}\"}}}}}}\n"
            ),
        ),
        "swdl" => (
            "workflows/swdl.yaml".to_owned(),
            "workflow: {id: swdl, name: Leaf}\nconfig: {parameters: {who: {type: string, required: true}}}\n\
             x-skein: {output: {greeting: \"${{ stages.greet.outputs.greeting }}\"}}\nstages:\n  - id: greet\n    \
             name: Greet\n    roles: {primary: \"agent:greeter\"}\n    \
             inputs: {who: {type: string, source: \"${{ parameters.who }}\"}}\n    \
             outputs: {greeting: {type: string}}\n"
                .to_owned(),
        ),
        other => panic!("there is no format {other}"),
    }
}

/// A workflow of a format that takes `name`, calls another with it as `who`, and returns the result as `said`.
pub(crate) fn caller(format: &str, called: &str) -> (String, String) {
    let id = format!("{format}-calls-{called}");
    let file = match called {
        "aip15" => "aip15/WORKFLOW.md".to_owned(),
        other => format!("{other}.yaml"),
    };
    let takes = "{type: object, properties: {name: {type: string}}, required: [name]}";
    match format {
        "agentcore" => (
            format!("workflows/{id}.yaml"),
            format!(
                "name: {id}\nversion: \"1\"\ntimeout: 5m\nx-skein:\n  input: {takes}\n  \
                 output: {{said: \"${{{{ steps.ask.output.greeting }}}}!\"}}\nsteps:\n  ask:\n    workflow: {file}\n    \
                 x-skein: {{input: {{who: \"${{{{ input.name }}}}\"}}}}\n"
            ),
        ),
        "aip15" => (
            format!("workflows/{id}/WORKFLOW.md"),
            format!(
                "---\nname: Calls\nid: {id}\ndescription: Calls.\nversion: 1.0.0\ninputs: {takes}\n\
                 outputs: {{type: object, properties: {{said: {{type: string}}}}, required: [said]}}\nsteps:\n  \
                 - {{id: ask, kind: subworkflow, workflow: {called}, inputs: {{who: $input.name}}}}\n  \
                 - {{id: end, kind: tool, tool: text.template, \
                 inputs: {{template: \"{{{{it}}}}!\", values: {{it: $steps.ask.greeting}}}}}}\n\
                 result: {{said: $steps.end.text}}\n---\n"
            ),
        ),
        "ioa" => (
            format!("workflows/{id}.yaml"),
            format!(
                "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: {id}}}\nspec:\n  description: Calls.\n  \
                 domainsInvolved: [all]\n  timeout: 5m\n  x-skein:\n    input: {takes}\n    \
                 output: {{said: \"${{{{ steps.ask.output.greeting }}}}!\"}}\n  steps:\n    \
                 - {{name: ask, agent: greeter, action: Ask the other., \
                 x-skein: {{call: {called}, input: {{who: \"${{{{ payload.name }}}}\"}}}}}}\n"
            ),
        ),
        "swdl" => (
            format!("workflows/{id}.yaml"),
            format!(
                "workflow: {{id: {id}, name: Calls}}\nconfig: {{parameters: {{name: {{type: string, required: true}}}}}}\n\
                 x-skein: {{output: {{said: \"${{{{ stages.ask.outputs.greeting }}}}!\"}}}}\nstages:\n  - id: ask\n    \
                 name: Ask\n    x-skein: {{call: {file}}}\n    \
                 inputs: {{who: {{type: string, source: \"${{{{ parameters.name }}}}\"}}}}\n    \
                 outputs: {{greeting: {{type: string}}}}\n"
            ),
        ),
        other => panic!("there is no format {other}"),
    }
}

/// A project with a callable workflow of each format.
pub(crate) fn project() -> Project {
    let project = Project::new();
    let folder = &project.folder;
    folder.write("greet.sh", GREET);
    folder.write(
        "skein.toml",
        "[roles]\nowners = [\"*\"]\n[agents.greeter]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"greet.sh\"]\n",
    );
    folder.write("domains/all.yaml", "kind: Domain\nmetadata: { name: all }\n");
    folder.write(".tools/text.template/TOOL.md", tool("text.template", ""));
    folder.write(".drivers/own/DRIVER.md", driver("own", "kind: builtin\nimplements: [{ tool: text.template }]\n"));
    for format in FORMATS {
        let (name, text) = leaf(format);
        folder.write(&name, text);
    }
    project
}
