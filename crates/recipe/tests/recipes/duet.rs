//! Duet with both voices, and scenes that the engine makes with it.

use burn::tensor::{Device, Tensor};
use diffusion::{Guidance, Part, Process, Region, Scene, SchedulerConfig, Track};
use engine::{Batch, SceneSampler, Silent};
use models::dit::duet::{Duet, DuetConfig};
use nn::{
    Context, Dit, Inputs, Levels, Modality, OneDevice, Parameters, Plain, Prediction, Recompute,
    Schedule, Store, Weights,
};
use testkit::numbers::{bits, parameter, tensor};

fn model() -> (Duet, Store) {
    let config = DuetConfig { heads: 2, head_width: 8, depth: 2, ..DuetConfig::new(5, Some(4), 3) };
    let model = Duet { config };
    let store = Store::declared(|weights| model.declare(weights), parameter).unwrap();
    (model, store)
}

fn modality(name: &str, [samples, tokens, channels]: [usize; 3], axes: usize) -> Modality {
    let sigma = (tensor::<1>(&format!("{name}.sigma"), [samples]) + 1.0) / 2.0;
    Modality {
        tokens: tensor(&format!("{name}.tokens"), [samples, tokens, channels]),
        levels: Levels::per_sample(sigma.clone() * 1000.0),
        sigma,
        positions: tensor::<4>(&format!("{name}.places"), [samples, axes, tokens, 2]).abs() * 3.0,
        context: Context::text(tensor(&format!("{name}.text"), [samples, 4, 3]), None),
        frame: None,
        enabled: true,
    }
}

fn inputs() -> Inputs {
    let video = modality("video", [3, 6, 5], 3);
    Inputs { video, audio: Some(modality("audio", [3, 7, 4], 1)) }
}

fn loss(prediction: &Prediction) -> nn::Result<Tensor<1>> {
    let square = |x: Tensor<3>| kernels::sum(x.clone() * x);
    let audio = prediction.audio.clone().map(square);
    let video = square(prediction.video.clone());
    Ok(audio.map_or(video.clone(), |audio| audio + video))
}

/// The law: going back block by block is going back through the whole graph, to the bit, for every
/// parameter of both voices.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    let ((model, store), inputs) = (model(), inputs());
    let parameters = Parameters { provider: &store, trainable: &|_| true };
    let slope = |recompute| {
        OneDevice { recompute }.backward(&model, parameters, &inputs, &mut loss).unwrap()
    };
    let (blockwise, whole) = (slope(Recompute::PerBlock), slope(Recompute::Never));
    assert_eq!(blockwise.parameters.len(), store.iter().count());
    for (name, gradient) in &whole.parameters {
        assert_eq!(bits(&blockwise.parameters[name]), bits(gradient), "{name}");
    }
    for name in ["audio.time.linear_1.weight", "video.place.linear_1.weight"] {
        assert!(whole.parameters.contains_key(name), "{name}");
    }
}

/// Each voice hears the other; a sound that takes no part changes nothing.
#[test]
fn voices_hear_each_other() {
    let ((model, store), inputs) = (model(), inputs());
    let run =
        |inputs: &Inputs| nn::forward(&model, &Weights::new(&store), inputs, &mut Plain).unwrap();
    let both = run(&inputs);
    let mut louder = inputs.clone();
    louder.audio.as_mut().unwrap().tokens = tensor("other", [3, 7, 4]);
    let mut brighter = inputs.clone();
    brighter.video.tokens = tensor("other", [3, 6, 5]);
    assert_ne!(bits(&run(&louder).video), bits(&both.video));
    assert_ne!(bits(&run(&brighter).audio.unwrap()), bits(&both.audio.unwrap()));
    let mut silent = inputs.clone();
    silent.audio.as_mut().unwrap().enabled = false;
    let alone = Inputs { audio: None, ..inputs };
    assert_eq!(bits(&run(&silent).video), bits(&run(&alone).video));
    assert!(run(&silent).audio.is_none());
}

#[test]
fn inputs_of_another_size_are_refused() {
    let (model, store) = model();
    let refused = |change: fn(&mut Inputs)| {
        let mut inputs = inputs();
        change(&mut inputs);
        let refused = nn::forward(&model, &Weights::new(&store), &inputs, &mut Plain);
        refused.expect_err("it should be refused").to_string()
    };
    let message = refused(|inputs| inputs.video.tokens = tensor("x", [3, 6, 4]));
    assert!(message.contains("5 values per token"), "{message}");
    let message = refused(|inputs| inputs.video.positions = tensor("x", [3, 2, 6, 2]));
    assert!(message.contains("lie on 3 axes"), "{message}");
    let message = refused(|inputs| inputs.video.context.tokens = tensor("x", [3, 4, 2]));
    assert!(message.contains("text_width is 3"), "{message}");
    for json in [
        r#"{"video_channels": 0, "text_width": 3}"#,
        r#"{"video_channels": 3}"#,
        r#"{"video_channels": 3, "text_width": 3, "depth": 65537}"#,
        r#"{"video_channels": 3, "text_width": 3, "heads": 65536, "head_width": 65536}"#,
    ] {
        assert!(DuetConfig::from_json(json).is_err(), "{json}");
    }
}

/// A scene of `samples` clips of 2 x 2 x 1 tokens with a sound, the first frame given.
fn scene(samples: std::ops::Range<usize>, given: bool) -> Scene {
    let device = Device::flex();
    let all = |name: &str, shape: [usize; 3]| -> Tensor<3> {
        tensor::<3>(name, shape).slice_dim(0, samples.clone())
    };
    let count = samples.len();
    let places = nn::grid_positions([2, 2, 1], [1.0; 3], count, &device);
    let context = Context::text(all("text", [3, 4, 3]), None);
    let clean = all("clean", [3, 4, 5]);
    let mut video = Track::new(Part::Generated, clean, [2, 2, 1], places, context.clone());
    if given {
        let mask = Region::Prefix(1).mask([2, 2, 1]);
        (0..count).for_each(|sample| video.fix(sample, &mask));
    }
    let places = nn::grid_positions([3], [1.0], count, &device);
    let clean = all("sound", [3, 3, 4]);
    let audio = Track::new(Part::Generated, clean, [3, 1, 1], places, context);
    Scene { video, audio: Some(audio) }
}

fn sampler(guidance: f64) -> SceneSampler {
    let scheduler = r#"{"_class_name": "FlowMatchEulerDiscreteScheduler"}"#;
    let scheduler = SchedulerConfig::from_json(scheduler).unwrap();
    let guidance = Guidance::new(guidance).unwrap();
    SceneSampler::scheduled(Process::FlowClean, (&scheduler, 3), 4, guidance).unwrap()
}

/// The law that lets the engine batch: a sample does not depend on who shares its forward pass.
#[test]
fn a_sample_does_not_depend_on_its_neighbours() {
    let (model, store) = model();
    let null = Context::text(tensor("null", [1, 4, 3]), None);
    let run = |samples: std::ops::Range<usize>, sampler: &SceneSampler| {
        let place = Batch { seed: 5, first: samples.start as u64 };
        let mut predict =
            |inputs: &Inputs| Ok(nn::forward(&model, &Weights::new(&store), inputs, &mut Plain)?);
        let scene = scene(samples, true);
        sampler.run(&scene, Some(&null), place, &mut Silent, &mut predict).unwrap()
    };
    let few =
        SceneSampler::renoising(Process::FlowClean, &[1000.0, 400.0], Guidance::new(1.0).unwrap());
    for sampler in [sampler(2.0), sampler(1.0), few.unwrap()] {
        let whole = run(0..3, &sampler);
        for sample in 0..3 {
            let alone = run(sample..sample + 1, &sampler);
            let own = |tensor: &Tensor<3>| tensor.clone().slice_dim(0, sample..sample + 1);
            assert_eq!(bits(&alone.video), bits(&own(&whole.video)));
            let (alone, whole) = (alone.audio.unwrap(), whole.audio.clone().unwrap());
            assert_eq!(bits(&alone), bits(&own(&whole)));
        }
        // What was given is given back, to the bit.
        let clean = scene(0..3, true).video.clean;
        let first = |tensor: &Tensor<3>| bits(&tensor.clone().slice_dim(1, 0..2));
        assert_eq!(first(&whole.video), first(&clean));
        let rest = |tensor: &Tensor<3>| bits(&tensor.clone().slice_dim(1, 2..4));
        assert_ne!(rest(&whole.video), rest(&clean));
    }
}

#[test]
fn guidance_needs_a_text_to_push_away_from() {
    let place = Batch { seed: 5, first: 0 };
    let mut predict = |_: &Inputs| panic!("nothing runs");
    let refused = sampler(2.0).run(&scene(0..1, false), None, place, &mut Silent, &mut predict);
    assert!(refused.err().unwrap().to_string().contains("unconditional"));
}
