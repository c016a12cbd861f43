//! The card of a file in a catalog: its id, the place of the id, and the other names that it refers to.
//!
//! Owns the few fields that files of every kind share. Does not validate a file: the reader of its kind does.

use std::sync::Arc;

use skein_core::secret_name::to_variable_name;

use crate::{
    catalog::CatalogKind,
    diagnostics::{DiagnosticSink, SourceFile, SourcePosition},
    source::{
        front_matter_span,
        yaml::{YamlNode, parse_yaml},
    },
};

/// The description of a file, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogCard {
    /// Its id, or else its name. None if only its path names it.
    pub id: Option<String>,
    /// The place of the id, or else the first line.
    pub at: SourcePosition,
    pub version: Option<String>,
    pub description: Option<String>,
    /// The kind of a driver or of a resource.
    pub kind: Option<String>,
    /// The other names that it refers to.
    pub names: Vec<(CatalogKind, String)>,
}

/// Reads the card of a Markdown or YAML file.
pub fn read_catalog_card(source: &Arc<SourceFile>) -> CatalogCard {
    let nothing = CatalogCard {
        id: None,
        at: SourcePosition { line: 1, column: 1 },
        version: None,
        description: None,
        kind: None,
        names: Vec::new(),
    };
    let tree = front_matter_span(source).and_then(|part| parse_yaml(part, &mut DiagnosticSink::new(source.clone())));
    let Some(tree) = tree else { return nothing };
    let root = tree.root();
    let at = |path: &&str| path.split('/').try_fold(root, |node, key| node.get(key));
    let first = |paths: &[&str]| paths.iter().filter_map(at).find_map(non_empty_text);
    let id = ["id", "slug", "metadata/name", "name"];
    let id = id.iter().filter_map(at).find_map(|node| Some((non_empty_text(node)?, node.first_line_span().start)));
    CatalogCard {
        at: id.as_ref().map_or(nothing.at, |(_, start)| source.position(*start)),
        id: id.map(|(id, _)| id),
        version: first(&["version", "metadata/version"]),
        description: first(&["description", "spec/description", "spec/purpose"]),
        kind: first(&["kind"]),
        names: referenced_names(root),
    }
}

fn non_empty_text(node: YamlNode<'_>) -> Option<String> {
    let raw = node.raw_text().filter(|_| !node.is_null())?.trim();
    (!raw.is_empty()).then(|| raw.to_owned())
}

/// Returns the action of a tool, the tools of a driver, the secrets of both, the target of a routine, and the domain of
/// an agent.
fn referenced_names(root: YamlNode<'_>) -> Vec<(CatalogKind, String)> {
    let mut names = Vec::new();
    if let Some(implements) = root.get("implements") {
        match implements.items() {
            Some(items) => {
                let tools = items.filter_map(|item| item.get("tool")).filter_map(non_empty_text);
                names.extend(tools.map(|tool| (CatalogKind::Tool, tool)));
            }
            None => names.extend(read_reference(implements).map(|action| (CatalogKind::Action, action))),
        }
    }
    for path in [["requires", "secrets"].as_slice(), &["auth", "state", "env"]] {
        let list = path.iter().try_fold(root, |node, key| node.get(key)).and_then(YamlNode::items);
        let secrets = list.into_iter().flatten().filter_map(non_empty_text);
        names.extend(secrets.map(|name| (CatalogKind::Secret, to_variable_name(&name))));
    }
    for (key, sort) in
        [("action", CatalogKind::Action), ("workflow", CatalogKind::Workflow), ("tool", CatalogKind::Tool)]
    {
        let target = root.get("target").and_then(|target| target.get(key));
        names.extend(target.and_then(read_reference).map(|name| (sort, name)));
    }
    let domain = root.get("spec").and_then(|spec| spec.get("domain")).and_then(non_empty_text);
    names.extend(domain.map(|domain| (CatalogKind::Domain, domain)));
    names
}

/// Reads a name, or a mapping that holds one.
fn read_reference(node: YamlNode<'_>) -> Option<String> {
    non_empty_text(node).or_else(|| ["ref", "id", "file"].iter().find_map(|key| node.get(key).and_then(non_empty_text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> CatalogCard {
        read_catalog_card(&SourceFile::new(name, text))
    }

    #[test]
    fn a_card_is_read_from_front_matter_and_from_resources() {
        let tool = of(
            "TOOL.md",
            "---\nname: Weigh\nid: weigh\nversion: 2.1.0\nimplements: scale:weigh\nrequires: {secrets: [a-key]}\n---\n",
        );
        assert_eq!(tool.id.as_deref(), Some("weigh"));
        assert_eq!(tool.at, SourcePosition { line: 3, column: 5 });
        let secret = (CatalogKind::Secret, "A_KEY".to_owned());
        assert_eq!(tool.names, [(CatalogKind::Action, "scale:weigh".to_owned()), secret]);
        let driver = of("DRIVER.md", "---\nid: desk\nkind: cli\nimplements: [{tool: weigh}, {tool: b}]\n---\n");
        assert_eq!(driver.names, [(CatalogKind::Tool, "weigh".to_owned()), (CatalogKind::Tool, "b".to_owned())]);
        let agent = of("a.yaml", "kind: Agent\nmetadata: {name: writer}\nspec: {domain: shop, purpose: Writes.}\n");
        assert_eq!((agent.id.as_deref(), agent.description.as_deref()), (Some("writer"), Some("Writes.")));
        assert_eq!(agent.names, [(CatalogKind::Domain, "shop".to_owned())]);
    }

    #[test]
    fn what_cannot_be_read_has_an_empty_card() {
        for (name, text) in [("a.md", "Only prose.\n"), ("a.yaml", "{"), ("b.md", "---\nid: x\n"), ("c.yaml", "")] {
            let card = of(name, text);
            assert_eq!((card.id, card.at.line), (None, 1), "{name}");
        }
    }
}
