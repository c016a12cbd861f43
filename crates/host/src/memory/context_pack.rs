//! The context pack of an agent: the texts it is given beside its instructions, within budgets.
//!
//! Pure: the same modules and memories produce the same pack. Parts that do not fit are left out and named in a note;
//! nothing here fails.

use std::{collections::BTreeSet, fmt::Write};

use serde::{Deserialize, Serialize};
use skein_core::ir;

use super::{MemoryEntry, MemoryKind};
use crate::workspace::PathPattern;

/// The approximate number of bytes per token.
const TOKEN: usize = 4;
/// The default budget of a module.
pub(crate) const MODULE_TOKENS: u32 = 2_000;
/// From `SURE` on, a memory is given without its confidence; below `UNSURE`, it is marked as low.
const SURE: f64 = 0.85;
const UNSURE: f64 = 0.6;

/// A context module: a text, and a selection of memories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextModule {
    pub text: String,
    pub max_tokens: u32,
    /// The stages that get the module. Empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workflow_stages: Vec<String>,
    /// The selection of memories: by kind, by minimum confidence and by file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_types: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_patterns: Vec<String>,
}

impl Default for ContextModule {
    fn default() -> ContextModule {
        ContextModule {
            text: String::new(),
            max_tokens: MODULE_TOKENS,
            workflow_stages: Vec::new(),
            memory_types: Vec::new(),
            min_confidence: None,
            file_patterns: Vec::new(),
        }
    }
}

/// The context that a stage requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackRequest<'a> {
    pub stage: &'a str,
    /// The modules in order; `None` if the project has none of that name.
    pub modules: &'a [(&'a str, Option<&'a ContextModule>)],
    pub memory: Option<&'a ir::MemorySelection>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContextPack {
    /// `None` if there is no context.
    pub text: Option<String>,
    /// The parts that were left out, one line each.
    pub notes: Vec<String>,
}

/// Builds the context pack of a stage.
pub(crate) fn build_pack(request: PackRequest<'_>, memories: &[MemoryEntry]) -> ContextPack {
    let mut packing = PackBuilder { request, memories, chosen: BTreeSet::new(), notes: Vec::new() };
    let texts: Vec<String> =
        request.modules.iter().filter_map(|(name, module)| packing.add_module(name, *module)).collect();
    packing.add_requested_memories();
    let parts: Vec<String> = texts.into_iter().chain(packing.render_memories()).collect();
    let text = (!parts.is_empty()).then(|| format!("# Context Pack\n\n{}", parts.join("\n\n")));
    ContextPack { text, notes: packing.notes }
}

struct PackBuilder<'a> {
    request: PackRequest<'a>,
    memories: &'a [MemoryEntry],
    /// The indices of the chosen memories.
    chosen: BTreeSet<usize>,
    notes: Vec<String>,
}

impl PackBuilder<'_> {
    fn add_module(&mut self, name: &str, module: Option<&ContextModule>) -> Option<String> {
        let Some(module) = module else {
            self.notes.push(format!("context module `{name}` not found; it is left out"));
            return None;
        };
        let stages = &module.workflow_stages;
        if !stages.is_empty() && !stages.iter().any(|stage| stage == self.request.stage) {
            self.notes.push(format!("the context module `{name}` is for other stages"));
            return None;
        }
        let room = token_bytes(module.max_tokens);
        let text = module.text.trim();
        let kept = truncate_text(text, room);
        if kept.len() < text.len() {
            self.notes.push(format!(
                "the context module `{name}` has about {} tokens and is cut to {}",
                estimate_tokens(text.len()),
                estimate_tokens(kept.len())
            ));
        }
        if module.selects_memories() {
            self.choose_memories(&format!("`{name}`"), room - kept.len(), |memory| module.matches_memory(memory));
        }
        let short = name.split_once(':').map_or(name, |(_, name)| name);
        (!kept.is_empty()).then(|| format!("## {short}\n\n{kept}"))
    }

    /// Adds the memories that the workflow or the stage itself requests.
    fn add_requested_memories(&mut self) {
        let Some(selection) = self.request.memory else { return };
        let takes = |memory: &MemoryEntry| {
            let kinds = &selection.categories;
            memory.confidence >= selection.min_confidence
                && memory.scope == selection.scope
                && (kinds.is_empty() || kinds.iter().any(|kind| kind == memory.kind.as_str()))
        };
        self.choose_memories("the memory selection", token_bytes(selection.max_tokens), takes);
    }

    /// Chooses memories by confidence, then by age (newest first), until the budget is used up.
    fn choose_memories(&mut self, whose: &str, mut room: usize, takes: impl Fn(&MemoryEntry) -> bool) {
        let stage = self.request.stage;
        let fits = |memory: &MemoryEntry| {
            let stages = &memory.stages;
            memory.status.is_usable() && (stages.is_empty() || stages.iter().any(|own| own == stage)) && takes(memory)
        };
        let mut found: Vec<usize> = (0..self.memories.len()).filter(|i| fits(&self.memories[*i])).collect();
        found.retain(|i| !self.chosen.contains(i));
        let order = |i: &usize| {
            let memory = &self.memories[*i];
            (memory.confidence, memory.created_at, memory.id.as_str())
        };
        found.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(std::cmp::Ordering::Equal));
        let mut left = 0;
        for i in found {
            let needs = render_memory(&self.memories[i]).len() + 1;
            if left > 0 || needs > room {
                left += 1;
                continue;
            }
            room -= needs;
            self.chosen.insert(i);
        }
        if left > 0 {
            self.notes.push(match left {
                1 => format!("1 memory does not fit into the budget of {whose} and is left out"),
                _ => format!("{left} memories do not fit into the budget of {whose} and are left out"),
            });
        }
    }

    /// Renders the chosen memories by kind.
    fn render_memories(&self) -> Option<String> {
        let mut text = String::new();
        for kind in MemoryKind::ALL {
            let own = self.chosen.iter().map(|i| &self.memories[*i]).filter(|memory| memory.kind == kind);
            let lines: Vec<String> = own.map(render_memory).collect();
            if !lines.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n\n" };
                let _ = write!(text, "{gap}## {}\n\n{}", kind.section_title(), lines.join("\n"));
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

impl ContextModule {
    /// True if the module selects memories.
    fn selects_memories(&self) -> bool {
        !self.memory_types.is_empty() || self.min_confidence.is_some() || !self.file_patterns.is_empty()
    }

    fn matches_memory(&self, memory: &MemoryEntry) -> bool {
        let kinds = &self.memory_types;
        let matches_file = |pattern: &String| {
            let pattern = PathPattern::new(pattern);
            memory.files.iter().any(|file| pattern.matches(file))
        };
        (kinds.is_empty() || kinds.iter().any(|kind| kind == memory.kind.as_str()))
            && memory.confidence >= self.min_confidence.unwrap_or(0.0)
            && (self.file_patterns.is_empty() || self.file_patterns.iter().any(matches_file))
    }
}

/// Renders a memory as an item of a list.
fn render_memory(memory: &MemoryEntry) -> String {
    let sure = match memory.confidence {
        SURE.. => "",
        UNSURE.. => " [medium confidence]",
        _ => " [low confidence]",
    };
    format!("- {}{sure}", memory.text.trim().replace('\n', "\n  "))
}

fn token_bytes(tokens: u32) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN)
}

/// Estimates the number of tokens of a text with this many bytes.
pub(crate) fn estimate_tokens(bytes: usize) -> usize {
    bytes.div_ceil(TOKEN)
}

/// Truncates a text: to whole paragraphs if there are any, else to whole lines, else to whole characters.
fn truncate_text(text: &str, room: usize) -> &str {
    if text.len() <= room {
        return text;
    }
    let mut end = room;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let whole = &text[..end];
    let at = whole.rfind("\n\n").or_else(|| whole.rfind('\n')).unwrap_or(end);
    whole[..at].trim_end()
}

#[cfg(test)]
mod tests {
    use super::{super::MemoryStatus, *};

    fn memory(text: &str, kind: MemoryKind, confidence: f64, at: i64) -> MemoryEntry {
        let id = text.replace(' ', "");
        MemoryEntry { kind, text: text.into(), confidence, ..super::super::tests::memory(&id, at) }
    }

    fn asks(max_tokens: u32) -> ir::MemorySelection {
        ir::MemorySelection { scope: "current".into(), min_confidence: 0.5, categories: Vec::new(), max_tokens }
    }

    fn packed(
        modules: &[(&str, Option<&ContextModule>)],
        memory: Option<&ir::MemorySelection>,
        all: &[MemoryEntry],
    ) -> ContextPack {
        build_pack(PackRequest { stage: "plan", modules, memory }, all)
    }

    #[test]
    fn nothing_asked_is_nothing_told() {
        assert_eq!(packed(&[], None, &[memory("a", MemoryKind::Gotcha, 1.0, 0)]), ContextPack::default());
        let none = packed(&[("ctx:rules", None)], None, &[]);
        assert_eq!((none.text, none.notes.len()), (None, 1));
    }

    #[test]
    fn the_surest_come_first_and_the_rest_is_named() {
        let all = [
            memory("low one", MemoryKind::Learning, 0.55, 9),
            memory("old sure", MemoryKind::Gotcha, 0.9, 1),
            memory("new sure", MemoryKind::Decision, 0.9, 2),
            memory("middling", MemoryKind::Gotcha, 0.7, 3),
            memory("unsure", MemoryKind::Gotcha, 0.4, 4),
            MemoryEntry { status: MemoryStatus::Candidate, ..memory("proposed", MemoryKind::Gotcha, 1.0, 5) },
            MemoryEntry { status: MemoryStatus::Retired, ..memory("gone", MemoryKind::Gotcha, 1.0, 5) },
            MemoryEntry { scope: "other".into(), ..memory("elsewhere", MemoryKind::Gotcha, 1.0, 5) },
            MemoryEntry { stages: vec!["ship".into()], ..memory("not now", MemoryKind::Gotcha, 1.0, 5) },
        ];
        let whole = packed(&[], Some(&asks(500)), &all);
        let wanted = "# Context Pack\n\n## Decisions\n\n- new sure\n\n## Gotchas\n\n- old sure\n- middling [medium \
                      confidence]\n\n## Learnings\n\n- low one [low confidence]";
        assert_eq!((whole.text.as_deref(), whole.notes.len()), (Some(wanted), 0));
        // Room for two lines of ten bytes with their line feeds.
        let few = packed(&[], Some(&asks(6)), &all);
        let text = few.text.unwrap();
        assert!(text.contains("new sure") && text.contains("old sure") && !text.contains("middling"), "{text}");
        assert_eq!(few.notes, ["2 memories do not fit into the budget of the memory selection and are left out"]);
        let only = ir::MemorySelection { categories: vec!["decision".into()], ..asks(500) };
        assert!(!packed(&[], Some(&only), &all).text.unwrap().contains("Gotchas"));
    }

    #[test]
    fn a_module_is_told_within_its_budget_to_those_it_is_for() {
        let long =
            ContextModule { text: "One.\n\nTwo two two.\n\nThree".into(), max_tokens: 5, ..ContextModule::default() };
        let pack = packed(&[("ctx:rules", Some(&long))], None, &[]);
        assert_eq!(pack.text.as_deref(), Some("# Context Pack\n\n## rules\n\nOne.\n\nTwo two two."));
        assert_eq!(pack.notes, ["the context module `ctx:rules` has about 7 tokens and is cut to 5"]);
        let other = ContextModule { workflow_stages: vec!["ship".into()], ..long };
        let pack = packed(&[("ctx:rules", Some(&other))], None, &[]);
        assert_eq!((pack.text, pack.notes.len()), (None, 1));
    }

    #[test]
    fn a_module_brings_memories_along_once() {
        let about = MemoryEntry { files: vec!["src/api/x.rs".into()], ..memory("of x", MemoryKind::Gotcha, 0.9, 1) };
        let all = [about, memory("of none", MemoryKind::Gotcha, 0.9, 2)];
        let module = ContextModule { file_patterns: vec!["src/api/**".into()], ..ContextModule::default() };
        let pack = packed(&[("ctx:api", Some(&module)), ("ctx:api2", Some(&module))], Some(&asks(100)), &all);
        let text = pack.text.unwrap();
        assert_eq!((text.matches("of x").count(), text.matches("of none").count()), (1, 1), "{text}");
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        for room in 0..12 {
            assert!(truncate_text("äöü äöü", room).len() <= room);
        }
    }
}
