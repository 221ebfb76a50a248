//! The denoise loop. It is the only one in the workspace.

use std::ops::Range;

/// Where the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The step of the schedule, from 0.
    pub step: usize,
    /// The patch among those that were given, from 0.
    pub patch: usize,
}

/// Takes every patch through `steps`, step by step and patch by patch.
///
/// `patches` are regions of one latent, usually just one, with whatever belongs to them (a
/// solver's state, for one). `advance` takes a patch through one step and hides everything that
/// differs between tasks: guidance, parallel layout, step caches, expert switching. It may
/// return a patch that is still on its way from another rank. The loop stops at the first error,
/// which is how it is interrupted; it is resumed by starting `steps` later.
pub fn denoise<L, E>(
    steps: Range<usize>,
    mut patches: Vec<L>,
    mut advance: impl FnMut(Place, L) -> Result<L, E>,
) -> Result<Vec<L>, E> {
    for step in steps {
        patches = patches
            .into_iter()
            .enumerate()
            .map(|(patch, latents)| advance(Place { step, patch }, latents))
            .collect::<Result<_, E>>()?;
    }
    Ok(patches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(steps: Range<usize>, patches: Vec<String>) -> Vec<String> {
        denoise(steps, patches, |place, seen| {
            Ok::<_, ()>(format!("{seen}{}.{} ", place.step, place.patch))
        })
        .unwrap()
    }

    #[test]
    fn every_patch_takes_every_step_and_resuming_takes_the_rest() {
        let start = vec![String::new(); 2];
        let whole = visit(0..3, start.clone());
        assert_eq!(whole, ["0.0 1.0 2.0 ", "0.1 1.1 2.1 "]);
        assert_eq!(visit(1..3, visit(0..1, start)), whole);
    }

    #[test]
    fn an_error_stops_the_loop_at_once() {
        let mut calls = Vec::new();
        let stopped = denoise(0..3, vec![(), ()], |place, ()| {
            calls.push(place);
            if place == (Place { step: 1, patch: 0 }) { Err("interrupted") } else { Ok(()) }
        });
        assert_eq!(stopped, Err("interrupted"));
        let order: Vec<_> = calls.iter().map(|place| (place.step, place.patch)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 0)]);
    }
}
