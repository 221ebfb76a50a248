//! Each rank opens the weights that it needs: the tensors of a stage are told by their names.

use std::collections::BTreeSet;

use burn::tensor::Device;
use comm::{Axis, Ranks};
use engine::{Pipeline, Request, Setup, Silent};
use parallel::Plan;

use crate::asked::{Model, Nobody, models, requests};
use crate::cases::{Law, layout};
use crate::runs::{STEPS, latents, values_of};

/// The block that a tensor belongs to, if it does: every family numbers them.
fn block(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("blocks.")?;
    rest.split('.').next()?.parse().ok()
}

/// What each rank of a layout has open after a request, and what the first one made. Nothing was open before.
fn run(model: &Model, request: &Request, degrees: [usize; 6]) -> (Vec<Vec<String>>, Vec<Vec<f32>>) {
    let layout = layout((degrees, Some(2), Some(99), Law::Bits));
    let plan = Plan::new(&layout, &model.pipeline.workload(request).unwrap()).unwrap();
    let (_, folder) = model.folder.as_ref().unwrap();
    let made = Ranks::new(layout.ranks).run(|group| {
        let closed = Pipeline::open(folder, &Setup::new(&Device::flex())).unwrap();
        let mut own = closed.on(plan.mesh(group).unwrap(), &plan);
        let made = own.run(request, &mut Silent, &mut Nobody).unwrap();
        (own.held().swap_remove(0), values_of(made))
    });
    let mut made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    let first = std::mem::take(&mut made[0].1);
    (made.into_iter().map(|(held, _)| held).collect(), first)
}

#[test]
fn a_stage_opens_its_blocks_and_no_other() {
    let all = models();
    for model in all.iter().filter(|own| own.folder.is_some()) {
        let (_, request) = requests(&model.description).swap_remove(0);
        let request = Request { steps: Some(STEPS), ..request };
        let mut degrees = [1; 6];
        degrees[Axis::Pipeline as usize] = 3;
        let (held, made) = run(model, &request, degrees);
        let one = latents(model, &request, &layout(([1; 6], None, None, Law::Bits)));
        assert!(made == one, "{}: a stage lacks what it needs", model.name);
        let sets: Vec<BTreeSet<&str>> =
            held.iter().map(|own| own.iter().map(String::as_str).collect()).collect();
        let names: BTreeSet<&str> = model.store.iter().map(|(name, _)| name).collect();
        for (stage, own) in sets.iter().enumerate() {
            let blocks: BTreeSet<usize> = own.iter().filter_map(|name| block(name)).collect();
            assert_eq!(blocks, BTreeSet::from([stage]), "{}: the blocks of a stage", model.name);
            let others = names.iter().filter(|name| !own.contains(*name)).count();
            assert!(others > own.len() / 2, "{}: stage {stage} holds {}", model.name, own.len());
        }
        let together: BTreeSet<&str> = sets.iter().flatten().copied().collect();
        assert_eq!(together, names, "{}", model.name);
        // What only the ends do is held at the ends.
        let only = |stage: usize| {
            let elsewhere = |name: &&&str| {
                !sets[(stage + 1) % 3].contains(**name) && !sets[(stage + 2) % 3].contains(**name)
            };
            sets[stage].iter().filter(elsewhere).filter(|name| block(name).is_none()).count()
        };
        assert!(only(0) > 0 && only(1) == 0 && only(2) > 0, "{}", model.name);
    }
}

/// Ranks without stages of their own hold all that there is.
#[test]
fn whoever_runs_all_blocks_opens_all() {
    let all = models();
    let model = all.iter().find(|own| own.folder.is_some()).unwrap();
    let (_, request) = requests(&model.description).swap_remove(0);
    let request = Request { steps: Some(STEPS), ..request };
    let mut degrees = [1; 6];
    degrees[Axis::Ulysses as usize] = 2;
    let (held, _) = run(model, &request, degrees);
    for own in held {
        assert_eq!(own.len(), model.store.iter().count());
    }
}
