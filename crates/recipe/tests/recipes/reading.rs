//! What is refused, where, and with which advice.

use std::path::Path;

use recipe::{Recipe, SourceConfig};

const QUICKSTART: &str = include_str!("../../../../recipes/quickstart.yaml");

fn read(text: &str, overrides: &[&str]) -> recipe::Result<Recipe> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    Recipe::parse(text, Path::new("recipe.yaml"), &overrides)
}

fn refused(text: &str, overrides: &[&str]) -> String {
    read(text, overrides).expect_err("it should be refused").to_string()
}

#[test]
fn a_recipe_is_read_with_its_defaults() {
    let recipe = read(QUICKSTART, &[]).unwrap();
    assert_eq!(recipe.method.name(), "finetune");
    assert_eq!(recipe.run.accumulation, 1);
    let SourceConfig::Shapes(shapes) = &recipe.data.source else {
        panic!("it is the shapes world")
    };
    assert_eq!(shapes.withheld.len(), 4);
    assert_eq!(shapes.scenes().unwrap().len(), 44);
    // What is printed by a dry run is the same recipe again.
    let again = read(&recipe.to_yaml().unwrap(), &[]).unwrap();
    assert_eq!(again, recipe);
}

#[test]
fn an_unknown_key_has_a_place_and_a_suggestion() {
    let text = QUICKSTART.replace("\nloop:\n  steps:", "\nloop:\n  stepz:");
    let line = 1 + text.lines().position(|line| line.contains("stepz")).unwrap();
    let message = refused(&text, &[]);
    let unknown =
        format!("recipe.yaml:{line}:3: unknown key `stepz` in `loop`; did you mean `steps`?");
    let lacking = format!("recipe.yaml:{line}:3: `loop` lacks the key `steps`");
    assert_eq!(message, format!("2 things are wrong:\n  {unknown}\n  {lacking}"));
    let message =
        refused(&QUICKSTART.replace("      weight_decay: 0.01\n", "      momentun: 1\n"), &[]);
    assert!(
        message.contains("`momentun`") && message.contains("did you mean `momentum`?"),
        "{message}"
    );
    let message = refused(&QUICKSTART.replace("loop:", "lop:"), &[]);
    assert!(message.contains("unknown key `lop` in the recipe"), "{message}");
}

#[test]
fn wrong_types_missing_keys_and_unknown_names_are_refused() {
    let cases: [(&[&str], &str); 12] = [
        (&["loop.steps=many"], "`loop.steps` is text, but it is a whole number"),
        (&["loop.steps=2.5"], "`loop.steps` is a number, but it is a whole number"),
        (&["loop.steps=-1"], "`loop.steps` is -1, but it is at least 1"),
        (&["loop=3"], "`loop` is a whole number, but it is a section"),
        (&["method.name=finetun"], "did you mean `finetune`?"),
        (&["models.student.optimizer.kind=adam"], "one of adamw, adamw8bit, muon, sgd"),
        (&["models.student.rate.decay.kind=cosin"], "did you mean `cosine`?"),
        (&["models.student.rate={warmup: 3}"], "`models.student.rate` lacks the key `peak`"),
        (&["data.source.kind=folder"], "one of store, mix, shapes"),
        (&["data.source.world.size=[1]"], "`data.source.world.size` has 1 items, not 2"),
        (&["loop.steps.x=1"], "`x` cannot be below a whole number"),
        (&["loop.steps"], "not of the form key.key=value"),
    ];
    for (overrides, expected) in cases {
        let message = refused(QUICKSTART, overrides);
        assert!(message.contains(expected), "{overrides:?}: {message}");
        assert!(message.starts_with(&format!("the override {}", overrides[0])), "{message}");
        assert!(!message.ends_with('.'), "{message}");
    }
}

#[test]
fn roles_must_be_those_of_the_method() {
    let teacher = "models.teacher={from: somewhere}";
    let cases: [(&[&str], &str); 7] = [
        (
            &["method={name: dmd2, rollout: simulate, timesteps: [1000]}"],
            "lacks the role models.teacher",
        ),
        (
            &["method={name: dmd2, rollout: simulate, timesteps: [1000]}", teacher],
            "lacks the role models.critic",
        ),
        (&[teacher], "method finetune has no teacher"),
        (
            &["models.teacher={from: x, trainable: true}"],
            "marked trainable, but a teacher is frozen",
        ),
        (&["models.student.trainable=false"], "it is what learns"),
        (&["models.student.from=x"], "has both `from` and `new`"),
        (&["models.student.new=null"], "neither `from`"),
    ];
    for (overrides, expected) in cases {
        let message = refused(QUICKSTART, overrides);
        assert!(message.contains(expected), "{overrides:?}: {message}");
    }
    let method = "method={name: dmd2, rollout: simulate, timesteps: [1000], guidance: 2}";
    let critic = "models.critic={from: x, rate: {peak: 1}}";
    let store = "data.source={kind: store, path: x}";
    let message = refused(QUICKSTART, &[method, teacher, critic, store]);
    assert!(message.contains("negative_prompt"), "{message}");
    let levels = "levels={}";
    read(QUICKSTART, &[method, teacher, critic, store, levels, "negative_prompt={}"]).unwrap();
    // The shapes world has words of its own for no caption.
    read(QUICKSTART, &[method, teacher, critic, levels]).unwrap();
}

#[test]
fn what_is_no_yaml_is_refused() {
    assert!(refused("a: [1", &[]).starts_with("recipe.yaml: "));
    assert!(refused("loop: {steps: 1, steps: 2}", &[]).contains("steps"));
    assert!(refused("[1, 2]", &[]).contains("the recipe is a list, but it is a section"));
    let message = Recipe::read(Path::new("no-such.yaml"), &[]).unwrap_err().to_string();
    assert!(message.starts_with("cannot read no-such.yaml"), "{message}");
}

/// The schema that editors get describes every key, so that it can be shown.
#[test]
fn the_schema_explains_itself() {
    let schema = Recipe::schema();
    let steps = &schema["$defs"]["LoopConfig"]["properties"]["steps"];
    assert_eq!(steps["description"], "The last step.");
    assert_eq!(schema["properties"]["models"]["description"], "The networks by role.");
}

/// FastVideo's `x or default` cannot say 0.
#[test]
fn nought_is_a_value() {
    let overrides = [
        "models.student.optimizer={kind: adamw, betas: [0, 0.99], weight_decay: 0}",
        "models.student.rate.decay={kind: cosine, end: 0}",
        "data.caption_dropout=0",
        "data.prefetch=0",
        "checkpoint.every=0",
        "callbacks.ema.decay=0",
        "loop.seed=0",
    ];
    let resolved = read(QUICKSTART, &overrides).unwrap().resolved().unwrap();
    for pointer in [
        "/models/student/optimizer/betas/0",
        "/models/student/optimizer/weight_decay",
        "/models/student/rate/decay/end",
        "/data/caption_dropout",
        "/data/prefetch",
        "/checkpoint/every",
        "/callbacks/ema/decay",
        "/loop/seed",
    ] {
        let found = resolved.pointer(pointer).and_then(serde_json::Value::as_f64);
        assert_eq!(found, Some(0.0), "{pointer}");
    }
}

#[test]
fn a_student_of_few_steps_is_not_looked_at_in_others() {
    let text = include_str!("../../../../recipes/dmd2.yaml");
    let message = refused(text, &["callbacks.validation={every: 1, prompts: [x], steps: 9}"]);
    assert!(message.contains("remove steps"), "{message}");
}

/// One recipe in which every key is read, and what makes one of them idle.
#[test]
fn keys_that_would_do_nothing_are_refused_with_the_reason() {
    const DMD2: &str = include_str!("../../../../recipes/dmd2.yaml");
    let forcing = "method={name: diffusion_forcing}";
    let given = "strategy={name: flexible, video: {generated: false, source: latents, weight: 2}, \
                 audio: {generated: true, source: audio_latents}}";
    let quiet = "strategy={name: flexible, video: {generated: true, source: latents}, audio: \
                 {generated: false, source: audio_latents, weight: 0.5}}";
    let cases: [(&str, &[&str], &str, &str); 18] = [
        (DMD2, &["levels.video={kind: uniform}"], "levels", "method.score_range"),
        (DMD2, &["levels.stratified=true"], "levels", "method.timesteps"),
        (QUICKSTART, &[forcing], "levels.video", "each chunk of frames"),
        (
            QUICKSTART,
            &[forcing, "levels={stratified: true}"],
            "levels.stratified",
            "each chunk of frames",
        ),
        (QUICKSTART, &["levels.audio={kind: uniform}"], "levels.audio", "generates no sound"),
        (QUICKSTART, &[quiet, "levels.audio={kind: uniform}"], "levels.audio", "no sound"),
        (
            QUICKSTART,
            &[given, "levels.audio={kind: uniform}"],
            "levels.video",
            "generates no video",
        ),
        (QUICKSTART, &[given, "levels={}"], "strategy.video.weight", "has no loss"),
        (QUICKSTART, &["negative_prompt={}"], "negative_prompt", "finetune has no guidance"),
        (
            QUICKSTART,
            &[forcing, "levels={}", "negative_prompt={}"],
            "negative_prompt",
            "diffusion_forcing has no guidance",
        ),
        (DMD2, &["method.guidance=1"], "negative_prompt", "method.guidance is 1"),
        (DMD2, &["method.unconditional=zero"], "negative_prompt", "zeros stand in its place"),
        (DMD2, &["data.source={kind: shapes}"], "negative_prompt", "words of its own"),
        (
            DMD2,
            &["negative_prompt=null", "method.guidance=1", "method.unconditional=zero"],
            "method.unconditional",
            "predicts nothing unconditionally",
        ),
        (DMD2, &["method.shift=1"], "method.warp", "moves no timestep"),
        (QUICKSTART, &["data.held_out=3"], "data.held_out", "callbacks.validation"),
        (
            QUICKSTART,
            &["callbacks.ema={start: 2000}"],
            "callbacks.ema.start",
            "2000 updates, so nothing is averaged",
        ),
        (
            QUICKSTART,
            &["strategy={name: flexible, video: {generated: true, source: latents, conditions: \
               [{type: prefix, frames: 1}, {type: first_frame, probability: 0}]}}"],
            "strategy.video.conditions.1",
            "its probability is 0",
        ),
    ];
    for (text, overrides, key, why) in cases {
        let message = refused(text, overrides);
        let named = format!("`{key}` would do nothing: ");
        assert!(message.contains(&named) && message.contains(why), "{overrides:?}: {message}");
    }
}

#[test]
fn keys_of_the_world_that_would_do_nothing_are_refused_where_they_stand() {
    let weighed = "method={name: finetune}";
    let shapes: [(&str, &str, &str); 2] = [
        ("data.source.recoloured=true", "data.source.recoloured", "looks at no reference"),
        ("data.source.world={tone: {}}", "data.source.world.tone", "takes no sound"),
    ];
    for (argument, key, why) in shapes {
        let message = refused(QUICKSTART, &[weighed, argument]);
        assert!(message.contains(&format!("`{key}`")) && message.contains(why), "{message}");
    }
    // It says where, in the file or in an argument.
    let message = refused(&format!("{QUICKSTART}negative_prompt: {{}}\n"), &[]);
    let line = 1 + QUICKSTART.lines().count();
    assert!(message.starts_with(&format!("recipe.yaml:{line}:1: ")), "{message}");
    let message = refused(QUICKSTART, &["data.held_out=3"]);
    assert!(message.starts_with("the override data.held_out=3: "), "{message}");
}

/// What is printed with every default filled in is read again, whatever the method.
#[test]
fn defaults_are_not_refused() {
    for text in [QUICKSTART, include_str!("../../../../recipes/dmd2.yaml")] {
        let recipe = read(text, &[]).unwrap();
        assert_eq!(read(&recipe.to_yaml().unwrap(), &[]).unwrap(), recipe);
    }
    let forcing = ["method={name: diffusion_forcing}", "levels={}"];
    let recipe = read(QUICKSTART, &forcing).unwrap();
    assert_eq!(read(&recipe.to_yaml().unwrap(), &[]).unwrap(), recipe);
}

#[test]
fn a_source_that_no_data_hold_is_refused_with_the_nearest() {
    let flexible = |video: &str| format!("strategy={{name: flexible, video: {{{video}}}}}");
    let conditions = |condition: &str| {
        flexible(&format!("generated: true, source: latents, conditions: [{{{condition}}}]"))
    };
    let cases = [
        ("strategy={name: video_to_video, reference: ref_latent}".to_owned(), "`ref_latents`?"),
        ("strategy={name: text_to_video, audio: sound}".to_owned(), "audio_latents"),
        (flexible("generated: true, source: latent"), "`latents`?"),
        (flexible("generated: true, source: latents, text: words"), "text"),
        (conditions("type: mask, source: masks"), "`mask`?"),
        (conditions("type: reference, source: mask"), "ref_latents"),
    ];
    for (argument, near) in cases {
        let message = refused(QUICKSTART, &[&argument]);
        assert!(message.contains("which no data hold"), "{argument}: {message}");
        assert!(message.contains(near), "{argument}: {message}");
    }
}

/// Gradients are clipped unless a recipe says otherwise, as everywhere else.
#[test]
fn gradients_are_clipped_to_one_by_default() {
    let text = QUICKSTART.replace("  clip: 1.0\n", "");
    assert_ne!(text, QUICKSTART);
    assert_eq!(read(&text, &[]).unwrap().run.clip, Some(1.0));
    let unclipped = read(&text, &["loop.clip=null"]).unwrap();
    assert_eq!(unclipped.run.clip, None);
    // What was printed says so, and is read again.
    assert_eq!(read(&unclipped.to_yaml().unwrap(), &[]).unwrap().run.clip, None);
}

/// Nothing in the recipes of the tree is idle, misspelt or missing.
#[test]
fn every_recipe_of_the_tree_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let mut read = 0;
    for folder in [root.clone(), root.join("learn")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                Recipe::read(&path, &[]).unwrap();
                read += 1;
            }
        }
    }
    assert!(read > 10, "{read}");
}
