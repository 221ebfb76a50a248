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
    assert_eq!(
        message,
        format!("recipe.yaml:{line}:3: unknown key `stepz` in `loop`; did you mean `steps`?")
    );
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
        (&["loop.steps=-1"], "`loop.steps` is -1, but at least 0"),
        (&["loop=3"], "`loop` is a whole number, but it is a section"),
        (&["method.name=finetun"], "did you mean `finetune`?"),
        (&["models.student.optimizer.kind=adam"], "one of adamw, muon, sgd"),
        (&["models.student.rate.decay.kind=cosin"], "did you mean `cosine`?"),
        (&["models.student.rate={warmup: 3}"], "`models.student.rate` lacks the key `peak`"),
        (&["data.source.kind=folder"], "one of store, shapes"),
        (&["data.source.world.size=[1]"], "`data.source.world.size` has 1 items, not 2"),
        (&["loop.steps.x=1"], "`x` cannot be below a whole number"),
        (&["loop.steps"], "not of the form key.key=value"),
    ];
    for (overrides, expected) in cases {
        let message = refused(QUICKSTART, overrides);
        assert!(message.contains(expected), "{overrides:?}: {message}");
        assert!(message.starts_with(&format!("--set {}", overrides[0])), "{message}");
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
    let message = refused(QUICKSTART, &[method, teacher, critic]);
    assert!(message.contains("negative_prompt"), "{message}");
    read(QUICKSTART, &[method, teacher, critic, "negative_prompt={}"]).unwrap();
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
