//! A step of DMD2 against `tools/goldens/dmd2.py`.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use diffusion::{NoiseLevels, Process, Scene, Tokens, Track, TrackKind};
use methods::{Dmd2, Dmd2Config, Dmd2Draws, Dmd2Roles, Rollout, Unconditional};
use nn::Tracks;
use nn::{Context, Precision, Store};
use testkit::numbers::values;
use train::{Draws, Method, Pass};

use crate::setting::{TINY, frozen, strategy, trained};

struct Golden(Store);

impl Golden {
    fn open() -> Golden {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/dmd2.safetensors");
        Golden(Store::open(&[path], Precision::Stored, &Device::flex()).unwrap())
    }

    fn get<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.0.get(name).unwrap_or_else(|| panic!("{name}")).tensor()
    }

    fn role(&self, role: &str) -> Store {
        let start = format!("{role}.");
        self.0
            .clone()
            .renamed(|name| name.strip_prefix(&start).map(str::to_owned))
            .renamed(|name| (!name.starts_with("gradients")).then(|| name.to_owned()))
    }

    fn scene(&self, fixed: bool) -> Scene {
        let text = Context { tokens: self.get("text"), mask: None, image: None };
        let places = nn::grid_positions([6, 1], [1.0, 1.0], 2, &Device::flex());
        let clean = self.get("clean");
        let patch = [1, 1, 1];
        let tokens =
            Tokens { values: clean, positions: places.values().clone(), grid: [3, 1, 2], patch };
        let mut track = Track::new(TrackKind::Generated, tokens, text);
        if fixed {
            track.fix(&[[true, true, false, false, false, false], [false; 6]].concat());
        }
        Scene::video(track)
    }

    fn draws(&self, exit: usize) -> Dmd2Draws {
        let alone = |video| Tracks::video(video);
        let scored = |name: &str| {
            let levels = NoiseLevels::per_sample(values(&self.get::<1>(&format!("{name}_level"))));
            let levels = Tracks::video(levels);
            (levels, alone(self.get(&format!("{name}_noise"))))
        };
        let rollout = (0..=exit).map(|step| alone(self.get(&format!("rollout.{step}"))));
        Dmd2Draws {
            exit,
            rollout: rollout.collect(),
            score: scored("score"),
            critic: scored("critic"),
        }
    }
}

fn method(golden: &Golden) -> Dmd2 {
    let roles = Dmd2Roles {
        student: trained("student", Arc::new(TINY), golden.role("student")),
        teacher: frozen(Arc::new(TINY), golden.role("teacher")),
        critic: trained("critic", Arc::new(TINY), golden.role("critic")),
    };
    let config = Dmd2Config {
        rollout: Rollout::Simulate,
        timesteps: vec![1000.0, 700.0, 300.0],
        student_every: 1,
        guidance: 2.5,
        unconditional: Unconditional::NegativePrompt,
        score_range: [0.0, 1.0],
        shift: 1.0,
        warp: false,
    };
    let negative = Some(Context { tokens: golden.get("negative"), mask: None, image: None });
    let strategy = strategy(serde_json::json!({ "name": "text_to_video" }));
    Dmd2::new(roles, strategy, Process::Flow, config, negative).unwrap()
}

#[test]
fn losses_and_gradients_are_the_transcriptions() {
    let golden = Golden::open();
    for (case, exit) in [("free", 2), ("fixed", 1)] {
        let mut method = method(&golden);
        let draws = Draws::new(0, 1, 0, 2);
        let pass = Pass { iteration: 1, draws, share: 1.0, is_last: true };
        let (scene, choices) = (golden.scene(case == "fixed"), golden.draws(exit));
        let report = method.accumulate_with(&scene, &choices, &pass).unwrap();
        let [student, critic] = &report.losses[..] else { panic!("two losses") };
        for (loss, name) in [(student, "student_loss"), (critic, "critic_loss")] {
            let want = values(&golden.get::<1>(&format!("{case}.{name}")));
            for (got, want) in loss.values.iter().zip(&want) {
                assert!((got - want).abs() < 1e-5 * want, "{case} {name}: {got}, not {want}");
            }
        }
        for role in method.trained() {
            assert_eq!(role.gradients().len(), 9);
            for (name, gradient) in role.gradients() {
                let want =
                    golden.0.get(&format!("{case}.{}.gradients.{name}", role.name())).unwrap();
                let (got, want) = (values(gradient), values(&want.values));
                let norm = |values: &mut dyn Iterator<Item = f32>| {
                    values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
                };
                let off = norm(&mut got.iter().zip(&want).map(|(got, want)| got - want));
                let size = norm(&mut want.iter().copied());
                assert!(off < 1e-5 * size, "{case}, {} {name}: {off:e} of {size:e}", role.name());
            }
        }
    }
}
