//! Scopes of generated workflows: their steps, the order of the steps, and the values that each step may read.
//!
//! Owns order and routes. Every step of a routed scope is reachable, and a step reads only steps that can precede it.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use skein_core::{
    ids::StepId,
    ir::{RouteTarget, ScopeShape, Step, StepKindName, StepKindSpec, StepScope},
};

use super::{
    GeneratorStyle, WorkflowGenerator,
    expressions::{self, StepOutputShape},
};
use crate::rng::Rng;

/// A step that other steps may read.
#[derive(Debug, Clone)]
pub(super) struct ReadableStep {
    pub id: StepId,
    pub gives: StepOutputShape,
}

/// The values that an expression may read.
#[derive(Debug, Clone)]
pub(super) struct ReadableScope {
    pub seen: Vec<ReadableStep>,
    pub item: bool,
}

impl ReadableScope {
    pub(super) fn new() -> ReadableScope {
        ReadableScope { seen: Vec::new(), item: false }
    }

    pub(super) fn pick_step(&self, rng: &mut Rng) -> Option<&ReadableStep> {
        (!self.seen.is_empty()).then(|| rng.pick(&self.seen))
    }
}

/// The target of a cursor; `None` is the end.
pub(super) type CursorTarget = Option<usize>;

/// The order of the steps of a scope, before their contents are drawn.
pub(super) struct ScopeSkeleton {
    pub base: usize,
    pub routed: bool,
    pub cycles: bool,
    pub kinds: Vec<StepKindName>,
    pub after: Vec<BTreeSet<usize>>,
    pub next: Vec<Option<CursorTarget>>,
    /// The arms of a branch, its default last; of a gate the approval, rejection and timeout; of a wait the timeout.
    pub detours: Vec<Vec<Option<CursorTarget>>>,
    /// The conflict resolver of each step, if it has one.
    pub settled: Vec<Option<usize>>,
}

impl ScopeSkeleton {
    pub(super) fn resolve_target(&self, to: CursorTarget) -> RouteTarget {
        to.map_or(RouteTarget::End, |i| RouteTarget::Step(expressions::nth_step_id(self.base + i)))
    }

    fn find_following(&self) -> Vec<CursorTarget> {
        let targeted: BTreeSet<usize> = self.detours.iter().flatten().filter_map(|to| (*to)?).collect();
        let mut following = None;
        let mut all = vec![None; self.kinds.len()];
        for i in (0..self.kinds.len()).rev() {
            all[i] = self.next[i].unwrap_or(following);
            if !targeted.contains(&i) {
                following = Some(i);
            }
        }
        all
    }

    /// For each step, the steps that can come at any time after it, as a bit set.
    fn find_reachable(&self) -> Vec<u64> {
        let following = self.find_following();
        let mut reach: Vec<u64> = (0..self.kinds.len())
            .map(|i| {
                let mut bits = 0;
                self.detours[i].iter().filter_map(|to| (*to)?).for_each(|to| bits |= 1 << to);
                let replaced = match self.kinds[i] {
                    StepKindName::Branch => true,
                    StepKindName::Gate => self.detours[i].first().is_some_and(Option::is_some),
                    _ => false,
                };
                match following[i] {
                    Some(to) if !replaced => bits | 1 << to,
                    _ => bits,
                }
            })
            .collect();
        for via in 0..reach.len() {
            for from in 0..reach.len() {
                if reach[from] >> via & 1 == 1 {
                    reach[from] |= reach[via];
                }
            }
        }
        reach
    }

    fn is_reachable(&self) -> bool {
        let reach = self.find_reachable()[0] | 1;
        reach.count_ones() as usize >= self.kinds.len() && (0..self.kinds.len()).all(|i| reach >> i & 1 == 1)
    }

    /// Changes the routes so that the cursor can go through all steps in order.
    fn straighten(&mut self) {
        let count = self.kinds.len();
        for i in 0..count {
            let to = (i + 1 < count).then_some(i + 1);
            self.next[i] = Some(to);
            if self.kinds[i] == StepKindName::Branch
                && let Some(default) = self.detours[i].last_mut()
            {
                *default = Some(to);
            }
            if self.kinds[i] == StepKindName::Gate
                && let Some(approve) = self.detours[i].first_mut()
            {
                *approve = None;
            }
        }
    }
}

impl WorkflowGenerator {
    pub(super) fn draw_scope(&mut self, around: &ReadableScope, depth: u32, most: u32, root: bool) -> StepScope {
        let skeleton = self.draw_skeleton(depth, most, root);
        let before = find_predecessors(&skeleton);
        let mut built: Vec<Step> = Vec::new();
        let mut gives = vec![StepOutputShape::Nothing; skeleton.kinds.len()];
        for (i, kind) in skeleton.kinds.iter().enumerate() {
            gives[i] = kind_output_shape(*kind);
        }
        for (i, before) in before.into_iter().enumerate() {
            let mut readable = around.clone();
            for j in (0..skeleton.kinds.len()).filter(|j| before >> j & 1 == 1) {
                readable.seen.push(ReadableStep { id: expressions::nth_step_id(skeleton.base + j), gives: gives[j] });
                if let Some(step) = built.get(j)
                    && self.rng.chance_percent(10)
                {
                    add_inner_steps(&step.kind, &mut readable.seen);
                }
            }
            built.push(self.draw_step(&skeleton, i, &readable, depth));
        }
        self.assemble_scope(skeleton, built, gives)
    }

    fn assemble_scope(&mut self, skeleton: ScopeSkeleton, built: Vec<Step>, gives: Vec<StepOutputShape>) -> StepScope {
        let shape = if skeleton.routed {
            let start = self.rng.chance_percent(30).then(|| expressions::nth_step_id(skeleton.base));
            ScopeShape::Routed { start, cycles: skeleton.cycles }
        } else {
            ScopeShape::Graph
        };
        let mut scope = StepScope::new(shape, Vec::<Step>::new());
        scope.steps = built.into_iter().map(Arc::new).collect();
        if skeleton.cycles {
            scope.max_steps = Some(self.rng.next_u32_between(3, 14));
        }
        self.draw_scope_policies(&mut scope);
        let last = gives.len() - 1;
        if !skeleton.routed && self.rng.chance_percent(60) && gives[last] == StepOutputShape::Fields {
            let id = expressions::nth_step_id(skeleton.base + last);
            let field = *self.rng.pick(&["", ".n", ".word"]);
            scope.result = Some(expressions::parse_value(&json!(format!("$steps.{id}{field}"))));
        }
        if self.rng.chance_percent(5) {
            scope.outputs = expressions::shared_schema(*self.rng.pick(&[expressions::OBJECT, expressions::INTEGER]));
        }
        scope
    }

    fn draw_skeleton(&mut self, depth: u32, most: u32, root: bool) -> ScopeSkeleton {
        let count = self.rng.next_u32_between(1, most).min(self.left.max(1)) as usize;
        let base = self.ids;
        self.ids += count;
        self.left = self.left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        let routed = match self.table {
            GeneratorStyle::Aip => self.rng.chance_percent(90),
            GeneratorStyle::Mixed => self.rng.chance_percent(40),
            _ => self.rng.chance_percent(6),
        };
        let kinds: Vec<StepKindName> = (0..count).map(|_| self.draw_kind_name(routed && count > 1, depth)).collect();
        let mut skeleton = ScopeSkeleton {
            base,
            routed,
            cycles: routed && root && count > 1 && self.rng.chance_percent(20),
            after: vec![BTreeSet::new(); count],
            next: vec![None; count],
            detours: vec![Vec::new(); count],
            settled: vec![None; count],
            kinds,
        };
        if routed {
            self.draw_routes(&mut skeleton);
        } else {
            self.draw_dependencies(&mut skeleton);
        }
        self.draw_conflict_resolvers(&mut skeleton);
        skeleton
    }

    /// Makes some work steps resolve the conflicts of other work steps. A resolver comes right after those steps, and
    /// before the steps that depend on them.
    fn draw_conflict_resolvers(&mut self, skeleton: &mut ScopeSkeleton) {
        let following = skeleton.find_following();
        for by in 1..skeleton.kinds.len() {
            for (of, next) in following.iter().enumerate() {
                let work = [of, by].iter().all(|i| skeleton.kinds[*i] == StepKindName::Work);
                let free = of != by && skeleton.settled[of].is_none();
                let fits = if skeleton.routed {
                    *next == Some(by)
                } else {
                    let early = (0..by).any(|early| skeleton.after[early].contains(&of));
                    of < by && !early
                };
                let both = skeleton.settled[by].is_some() || skeleton.settled.contains(&Some(of));
                if !both && work && free && fits && self.rng.chance_percent(25) {
                    skeleton.settled[of] = Some(by);
                }
            }
        }
        for of in (0..skeleton.kinds.len()).filter(|_| !skeleton.routed) {
            let Some(by) = skeleton.settled[of] else { continue };
            let waiting = |i: &usize| *i != by && skeleton.after[*i].contains(&of);
            let waiting: Vec<usize> = (0..skeleton.kinds.len()).filter(waiting).collect();
            for i in waiting {
                skeleton.after[i].insert(by);
            }
            skeleton.after[by].insert(of);
        }
    }

    fn draw_dependencies(&mut self, skeleton: &mut ScopeSkeleton) {
        let chain = self.rng.chance_percent(45);
        for i in 1..skeleton.kinds.len() {
            if chain {
                skeleton.after[i].insert(i - 1);
                continue;
            }
            for j in 0..i {
                if self.rng.chance_percent(45) {
                    skeleton.after[i].insert(j);
                }
            }
        }
    }

    fn draw_routes(&mut self, skeleton: &mut ScopeSkeleton) {
        for i in 0..skeleton.kinds.len() {
            let detours = match skeleton.kinds[i] {
                StepKindName::Branch => {
                    (0..=self.rng.next_below(2) + 1).map(|_| Some(self.draw_cursor_target(skeleton, i))).collect()
                }
                StepKindName::Gate => {
                    let odds = [20, 40, 100];
                    odds.iter()
                        .map(|odds| self.rng.chance_percent(*odds).then(|| self.draw_cursor_target(skeleton, i)))
                        .collect()
                }
                StepKindName::Wait => vec![Some(self.draw_cursor_target(skeleton, i))],
                _ => Vec::new(),
            };
            skeleton.detours[i] = detours;
            if self.rng.chance_percent(15) {
                skeleton.next[i] = Some(self.draw_cursor_target(skeleton, i));
            }
        }
        // A detour of a gate or a wait counts only if its timeout uses it. That is decided here, so that the reachable
        // steps
        // are known.
        for i in 0..skeleton.kinds.len() {
            let goes = self.rng.chance_percent(15);
            if matches!(skeleton.kinds[i], StepKindName::Gate | StepKindName::Wait)
                && !goes
                && let Some(late) = skeleton.detours[i].last_mut()
            {
                *late = None;
            }
        }
        if !skeleton.is_reachable() {
            skeleton.straighten();
        }
    }

    /// Draws a target: forward, the end, or backward if cycles are allowed.
    fn draw_cursor_target(&mut self, skeleton: &ScopeSkeleton, from: usize) -> CursorTarget {
        let count = skeleton.kinds.len();
        if skeleton.cycles && self.rng.chance_percent(35) {
            return Some(self.rng.pick_index(from + 1));
        }
        let ahead = from + 1 + self.rng.pick_index(count - from);
        (ahead < count).then_some(ahead)
    }
}

/// For each step, the steps that can come before it, as a bit set.
fn find_predecessors(skeleton: &ScopeSkeleton) -> Vec<u64> {
    let count = skeleton.kinds.len();
    let mut before = vec![0_u64; count];
    if skeleton.routed {
        for (j, reach) in skeleton.find_reachable().into_iter().enumerate() {
            for (i, before) in before.iter_mut().enumerate() {
                if i != j && reach >> i & 1 == 1 {
                    *before |= 1 << j;
                }
            }
        }
    } else {
        for i in 0..count {
            for j in &skeleton.after[i] {
                before[i] |= before[*j] | 1 << j;
            }
        }
    }
    before
}

fn kind_output_shape(kind: StepKindName) -> StepOutputShape {
    match kind {
        StepKindName::Work => StepOutputShape::Fields,
        StepKindName::Gate => StepOutputShape::Decision,
        StepKindName::Wait => StepOutputShape::Signal,
        StepKindName::Branch => StepOutputShape::Nothing,
        StepKindName::Parallel | StepKindName::Each | StepKindName::Loop | StepKindName::Call => StepOutputShape::Whole,
    }
}

/// Adds the steps inside lanes and passes, which can be read from outside.
pub(super) fn add_inner_steps(kind: &StepKindSpec, seen: &mut Vec<ReadableStep>) {
    if matches!(kind, StepKindSpec::Each(_)) {
        return;
    }
    for scope in kind.inner_scopes() {
        for step in &scope.steps {
            seen.push(ReadableStep { id: step.id.clone(), gives: kind_output_shape(step.kind.name()) });
        }
    }
}
