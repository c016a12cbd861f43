//! Scopes of generated workflows: which steps there are, how they follow one another, what each may read.
//!
//! Owns order and routes. Every step of a routed scope can be reached, and a step reads only what can be before it.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use skein_core::{
    ids::StepId,
    ir::{Kind, KindName, Scope, Shape, Step, Target},
};

use super::{Gen, Table, pool, pool::Gives};
use crate::rng::Rng;

/// A step that others may read.
#[derive(Debug, Clone)]
pub struct Seen {
    pub id: StepId,
    pub gives: Gives,
}

/// What an expression may read.
#[derive(Debug, Clone)]
pub struct Readable {
    pub seen: Vec<Seen>,
    pub item: bool,
}

impl Readable {
    pub fn outermost() -> Readable {
        Readable { seen: Vec::new(), item: false }
    }

    pub fn pick(&self, rng: &mut Rng) -> Option<&Seen> {
        (!self.seen.is_empty()).then(|| rng.pick(&self.seen))
    }
}

/// Where a cursor goes; `None` is the end.
pub type To = Option<usize>;

/// How the steps of a scope follow one another, before what they do is drawn.
pub struct Skeleton {
    pub base: usize,
    pub routed: bool,
    pub cycles: bool,
    pub kinds: Vec<KindName>,
    pub after: Vec<BTreeSet<usize>>,
    pub next: Vec<Option<To>>,
    /// The arms of a branch, its default last; of a gate the approval, rejection and timeout; of a wait the timeout.
    pub detours: Vec<Vec<Option<To>>>,
    /// Who settles what each cannot merge.
    pub settled: Vec<Option<usize>>,
}

impl Skeleton {
    pub fn target(&self, to: To) -> Target {
        to.map_or(Target::End, |i| Target::Step(pool::id(self.base + i)))
    }

    fn following(&self) -> Vec<To> {
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

    /// For each step, those that can come at any time after it, as bits.
    fn reaches(&self) -> Vec<u64> {
        let following = self.following();
        let mut reach: Vec<u64> = (0..self.kinds.len())
            .map(|i| {
                let mut bits = 0;
                self.detours[i].iter().filter_map(|to| (*to)?).for_each(|to| bits |= 1 << to);
                let replaced = match self.kinds[i] {
                    KindName::Branch => true,
                    KindName::Gate => self.detours[i].first().is_some_and(Option::is_some),
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
        let reach = self.reaches()[0] | 1;
        reach.count_ones() as usize >= self.kinds.len() && (0..self.kinds.len()).all(|i| reach >> i & 1 == 1)
    }

    /// Goes through all steps in order, whatever else it does.
    fn straighten(&mut self) {
        let count = self.kinds.len();
        for i in 0..count {
            let to = (i + 1 < count).then_some(i + 1);
            self.next[i] = Some(to);
            if self.kinds[i] == KindName::Branch
                && let Some(default) = self.detours[i].last_mut()
            {
                *default = Some(to);
            }
            if self.kinds[i] == KindName::Gate
                && let Some(approve) = self.detours[i].first_mut()
            {
                *approve = None;
            }
        }
    }
}

impl Gen {
    pub(super) fn scope(&mut self, around: &Readable, depth: u32, most: u32, root: bool) -> Scope {
        let skeleton = self.skeleton(depth, most, root);
        let before = before(&skeleton);
        let mut built: Vec<Step> = Vec::new();
        let mut gives = vec![Gives::Nothing; skeleton.kinds.len()];
        for (i, kind) in skeleton.kinds.iter().enumerate() {
            gives[i] = gives_of(*kind);
        }
        for (i, before) in before.into_iter().enumerate() {
            let mut readable = around.clone();
            for j in (0..skeleton.kinds.len()).filter(|j| before >> j & 1 == 1) {
                readable.seen.push(Seen { id: pool::id(skeleton.base + j), gives: gives[j] });
                if let Some(step) = built.get(j)
                    && self.rng.percent(10)
                {
                    inside(&step.kind, &mut readable.seen);
                }
            }
            built.push(self.step(&skeleton, i, &readable, depth));
        }
        self.assemble(skeleton, built, gives)
    }

    fn assemble(&mut self, skeleton: Skeleton, built: Vec<Step>, gives: Vec<Gives>) -> Scope {
        let shape = if skeleton.routed {
            let start = self.rng.percent(30).then(|| pool::id(skeleton.base));
            Shape::Routed { start, cycles: skeleton.cycles }
        } else {
            Shape::Graph
        };
        let mut scope = Scope::new(shape, Vec::<Step>::new());
        scope.steps = built.into_iter().map(Arc::new).collect();
        if skeleton.cycles {
            scope.max_steps = Some(self.rng.small(3, 14));
        }
        self.scope_policies(&mut scope);
        let last = gives.len() - 1;
        if !skeleton.routed && self.rng.percent(60) && gives[last] == Gives::Fields {
            let id = pool::id(skeleton.base + last);
            let field = *self.rng.pick(&["", ".n", ".word"]);
            scope.result = Some(pool::value(&json!(format!("$steps.{id}{field}"))));
        }
        if self.rng.percent(5) {
            scope.outputs = pool::schema(*self.rng.pick(&[pool::OBJECT, pool::INTEGER]));
        }
        scope
    }

    fn skeleton(&mut self, depth: u32, most: u32, root: bool) -> Skeleton {
        let count = self.rng.small(1, most).min(self.left.max(1)) as usize;
        let base = self.ids;
        self.ids += count;
        self.left = self.left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        let routed = match self.table {
            Table::Aip => self.rng.percent(90),
            Table::Mixed => self.rng.percent(40),
            _ => self.rng.percent(6),
        };
        let kinds: Vec<KindName> = (0..count).map(|_| self.kind_name(routed && count > 1, depth)).collect();
        let mut skeleton = Skeleton {
            base,
            routed,
            cycles: routed && root && count > 1 && self.rng.percent(20),
            after: vec![BTreeSet::new(); count],
            next: vec![None; count],
            detours: vec![Vec::new(); count],
            settled: vec![None; count],
            kinds,
        };
        if routed {
            self.routes(&mut skeleton);
        } else {
            self.dependencies(&mut skeleton);
        }
        self.conflicts(&mut skeleton);
        skeleton
    }

    /// Some work settles what other work cannot merge. It comes right after that, and before whoever waits for it.
    fn conflicts(&mut self, skeleton: &mut Skeleton) {
        let following = skeleton.following();
        for by in 1..skeleton.kinds.len() {
            for (of, next) in following.iter().enumerate() {
                let work = [of, by].iter().all(|i| skeleton.kinds[*i] == KindName::Work);
                let free = of != by && skeleton.settled[of].is_none();
                let fits = if skeleton.routed {
                    *next == Some(by)
                } else {
                    let early = (0..by).any(|early| skeleton.after[early].contains(&of));
                    of < by && !early
                };
                let both = skeleton.settled[by].is_some() || skeleton.settled.contains(&Some(of));
                if !both && work && free && fits && self.rng.percent(25) {
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

    fn dependencies(&mut self, skeleton: &mut Skeleton) {
        let chain = self.rng.percent(45);
        for i in 1..skeleton.kinds.len() {
            if chain {
                skeleton.after[i].insert(i - 1);
                continue;
            }
            for j in 0..i {
                if self.rng.percent(45) {
                    skeleton.after[i].insert(j);
                }
            }
        }
    }

    fn routes(&mut self, skeleton: &mut Skeleton) {
        for i in 0..skeleton.kinds.len() {
            let detours = match skeleton.kinds[i] {
                KindName::Branch => (0..=self.rng.below(2) + 1).map(|_| Some(self.to(skeleton, i))).collect(),
                KindName::Gate => {
                    let odds = [20, 40, 100];
                    odds.iter().map(|odds| self.rng.percent(*odds).then(|| self.to(skeleton, i))).collect()
                }
                KindName::Wait => vec![Some(self.to(skeleton, i))],
                _ => Vec::new(),
            };
            skeleton.detours[i] = detours;
            if self.rng.percent(15) {
                skeleton.next[i] = Some(self.to(skeleton, i));
            }
        }
        // A detour of a gate or a wait counts only where its timeout goes there; that is decided now, so that
        // what can be reached is known.
        for i in 0..skeleton.kinds.len() {
            let goes = self.rng.percent(15);
            if matches!(skeleton.kinds[i], KindName::Gate | KindName::Wait)
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

    /// Forward, to the end, or back where that is allowed.
    fn to(&mut self, skeleton: &Skeleton, from: usize) -> To {
        let count = skeleton.kinds.len();
        if skeleton.cycles && self.rng.percent(35) {
            return Some(self.rng.index(from + 1));
        }
        let ahead = from + 1 + self.rng.index(count - from);
        (ahead < count).then_some(ahead)
    }
}

/// For each step, those that can come before it, as bits.
fn before(skeleton: &Skeleton) -> Vec<u64> {
    let count = skeleton.kinds.len();
    let mut before = vec![0_u64; count];
    if skeleton.routed {
        for (j, reach) in skeleton.reaches().into_iter().enumerate() {
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

fn gives_of(kind: KindName) -> Gives {
    match kind {
        KindName::Work => Gives::Fields,
        KindName::Gate => Gives::Decision,
        KindName::Wait => Gives::Signal,
        KindName::Branch => Gives::Nothing,
        KindName::Parallel | KindName::Each | KindName::Loop | KindName::Call => Gives::Whole,
    }
}

/// Steps inside lanes and passes, which can be read from outside.
pub fn inside(kind: &Kind, seen: &mut Vec<Seen>) {
    if matches!(kind, Kind::Each(_)) {
        return;
    }
    for scope in kind.scopes() {
        for step in &scope.steps {
            seen.push(Seen { id: step.id.clone(), gives: gives_of(step.kind.name()) });
        }
    }
}
