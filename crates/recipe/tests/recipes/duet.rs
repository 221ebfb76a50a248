//! Duet with both voices, and scenes that are sampled with it.

use burn::tensor::{Device, Tensor};
use diffusion::{
    Guidance, Noise, Process, Region, Sampler, Scene, SchedulerConfig, Tokens, Track, TrackKind,
};
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
        positions: (tensor::<4>(&format!("{name}.places"), [samples, axes, tokens, 2]).abs() * 3.0)
            .into(),
        context: Context::text(tensor(&format!("{name}.text"), [samples, 4, 3]), None),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    }
}

fn inputs() -> Inputs {
    let video = modality("video", [3, 6, 5], 3);
    Inputs { video: Some(video), audio: Some(modality("audio", [3, 7, 4], 1)) }
}

fn loss(prediction: &Prediction) -> nn::Result<Tensor<1>> {
    let square = |x: Tensor<3>| kernels::sum(x.clone() * x);
    Ok(prediction.clone().map(square).into_iter().reduce(|sum, more| sum + more).unwrap())
}

/// The law: going back block by block is going back through the whole graph, to the bit, for every
/// parameter of both voices, or of one that sings alone.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    let (_, store) = model();
    assert_eq!(blockwise_equals_whole(inputs()), store.iter().count());
    assert!(blockwise_equals_whole(Inputs { video: None, ..inputs() }) > 10);
}

/// Returns how many parameters have a gradient.
fn blockwise_equals_whole(inputs: Inputs) -> usize {
    let (model, store) = model();
    let parameters = Parameters { provider: &store, trainable: &|_| true };
    let slope = |recompute| {
        OneDevice { recompute }.backward(&model, parameters, &inputs, &mut loss).unwrap()
    };
    let (blockwise, whole) = (slope(Recompute::PerBlock), slope(Recompute::Never));
    assert_eq!(blockwise.parameters.len(), whole.parameters.len());
    for (name, gradient) in &whole.parameters {
        assert_eq!(bits(&blockwise.parameters[name]), bits(gradient), "{name}");
    }
    let tokens = [blockwise.tokens, whole.tokens].map(|own| own.map(|tokens| bits(&tokens)));
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(tokens[0].as_ref().map(|_| ()), inputs.as_ref().map(|_| ()));
    whole.parameters.len()
}

/// Each voice hears the other; one that takes no part changes nothing.
#[test]
fn voices_hear_each_other() {
    let ((model, store), inputs) = (model(), inputs());
    let run =
        |inputs: &Inputs| nn::forward(&model, &Weights::new(&store), inputs, &mut Plain).unwrap();
    let both = run(&inputs);
    let mut louder = inputs.clone();
    louder.audio.as_mut().unwrap().tokens = tensor("other", [3, 7, 4]);
    let mut brighter = inputs.clone();
    brighter.video.as_mut().unwrap().tokens = tensor("other", [3, 6, 5]);
    assert_ne!(bits(run(&louder).video.as_ref().unwrap()), bits(both.video.as_ref().unwrap()));
    assert_ne!(bits(&run(&brighter).audio.unwrap()), bits(both.audio.as_ref().unwrap()));
    let mut silent = inputs.clone();
    silent.audio.as_mut().unwrap().enabled = false;
    let alone = Inputs { audio: None, ..inputs.clone() };
    assert_eq!(
        bits(run(&silent).video.as_ref().unwrap()),
        bits(run(&alone).video.as_ref().unwrap())
    );
    assert!(run(&silent).audio.is_none());
    let mut dark = inputs.clone();
    dark.video.as_mut().unwrap().enabled = false;
    let unseen = Inputs { video: None, ..inputs };
    assert_eq!(bits(&run(&dark).audio.unwrap()), bits(&run(&unseen).audio.unwrap()));
    assert_ne!(bits(&run(&unseen).audio.unwrap()), bits(&both.audio.unwrap()));
    assert!(run(&dark).video.is_none());
    let empty = nn::forward(&model, &Weights::new(&store), &Inputs::default(), &mut Plain);
    assert!(empty.unwrap_err().to_string().contains("the input is empty"));
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
    let message = refused(|inputs| inputs.video.as_mut().unwrap().tokens = tensor("x", [3, 6, 4]));
    assert!(message.contains("5 values per token"), "{message}");
    let message = refused(|inputs| {
        inputs.video.as_mut().unwrap().positions = tensor::<4>("x", [3, 2, 6, 2]).into()
    });
    assert!(message.contains("lie on 3 axes"), "{message}");
    let message =
        refused(|inputs| inputs.video.as_mut().unwrap().context.tokens = tensor("x", [3, 4, 2]));
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
    let positions = nn::grid_positions([2, 2, 1], [1.0; 3], count, &device).values().clone();
    let context = Context::text(all("text", [3, 4, 3]), None);
    let (values, patch) = (all("clean", [3, 4, 5]), [1, 1, 1]);
    let tokens = Tokens { values, positions, grid: [2, 2, 1], patch };
    let mut video = Track::new(TrackKind::Generated, tokens, context.clone());
    if given {
        video.fix(&Region::Prefix(1).mask([2, 2, 1]).repeat(count));
    }
    let positions = nn::grid_positions([3], [1.0], count, &device).values().clone();
    let tokens = Tokens { values: all("sound", [3, 3, 4]), positions, grid: [3, 1, 1], patch };
    let audio = Track::new(TrackKind::Generated, tokens, context);
    Scene { video: Some(video), audio: Some(audio) }
}

fn sampler(guidance: f64) -> Sampler {
    let scheduler = r#"{"_class_name": "FlowMatchEulerDiscreteScheduler"}"#;
    let scheduler = SchedulerConfig::from_json(scheduler).unwrap();
    let guidance = Guidance::new(guidance).unwrap();
    Sampler::scheduled(Process::FlowClean, &scheduler, 3, 4).unwrap().guided(|_| guidance)
}

/// The law that lets the engine batch: a sample does not depend on who shares its forward pass.
#[test]
fn a_sample_does_not_depend_on_its_neighbours() {
    let (model, store) = model();
    let null = Context::text(tensor("null", [1, 4, 3]), None);
    let run = |samples: std::ops::Range<usize>, sampler: &Sampler| {
        let noise = Noise::from_seed(5, samples.start as u64, samples.len());
        let scene = scene(samples, true);
        let predict = |_: usize, inputs: &[Inputs]| -> Result<_, diffusion::Error> {
            Ok(OneDevice::default().predict_all(&model, &store, inputs).unwrap())
        };
        sampler.run(&scene, Some(&null), &noise, predict).unwrap()
    };
    let few = Sampler::renoising(Process::FlowClean, &[1000.0, 400.0]);
    for sampler in [sampler(2.0), sampler(1.0), few.unwrap()] {
        let whole = run(0..3, &sampler).tokens;
        for sample in 0..3 {
            let alone = run(sample..sample + 1, &sampler).tokens;
            let own = |tensor: &Tensor<3>| tensor.clone().slice_dim(0, sample..sample + 1);
            assert_eq!(
                bits(alone.video.as_ref().unwrap()),
                bits(&own(whole.video.as_ref().unwrap()))
            );
            let (alone, whole) = (alone.audio.unwrap(), whole.audio.clone().unwrap());
            assert_eq!(bits(&alone), bits(&own(&whole)));
        }
        // What was given is given back, to the bit.
        let clean = scene(0..3, true).video.unwrap().clean;
        let first = |tensor: &Tensor<3>| bits(&tensor.clone().slice_dim(1, 0..2));
        assert_eq!(first(whole.video.as_ref().unwrap()), first(&clean));
        let rest = |tensor: &Tensor<3>| bits(&tensor.clone().slice_dim(1, 2..4));
        assert_ne!(rest(whole.video.as_ref().unwrap()), rest(&clean));
    }
}

/// Noise belongs to the element of the latents: however they are cut into tokens, a seed is one clip.
#[test]
fn noise_does_not_depend_on_how_tokens_are_cut() {
    let latents: Tensor<5> = tensor("latents", [1, 3, 4, 4, 4]);
    let context = Context::text(tensor("text", [1, 2, 3]), None);
    let noise = |patch: [usize; 3]| {
        let geometry = diffusion::Geometry::indices(patch);
        let tokens = geometry.video(&latents, &[16.0]).unwrap();
        let track = Track::new(TrackKind::Generated, tokens, context.clone());
        bits(&track.latents(track.noise(diffusion::Draw::new(7).sample(2))))
    };
    let whole = noise([1, 1, 1]);
    for patch in [[1, 2, 2], [2, 1, 4], [4, 4, 4]] {
        assert_eq!(noise(patch), whole, "{patch:?}");
    }
}

#[test]
fn guidance_needs_a_text_to_push_away_from() {
    let noise = Noise::from_seed(5, 0, 1);
    let predict =
        |_: usize, _: &[Inputs]| -> Result<_, diffusion::Error> { panic!("nothing runs") };
    let refused = sampler(2.0).run(&scene(0..1, false), None, &noise, predict);
    assert!(refused.err().unwrap().to_string().contains("unconditional"));
}
