// The models that are served and the jobs that there are. The page grows from here.
const list = (id, lines) => {
  const items = lines.map((text) => Object.assign(document.createElement("li"), { textContent: text }));
  document.getElementById(id).replaceChildren(...items);
};
const ask = async (path) => (await fetch(path)).json();

const models = await ask("/studio/api/models");
list("models", models.data.map((model) => `${model.id} (${model.family}): makes ${model.makes}s`));

const show = async () => {
  const jobs = await ask("/v1/videos?limit=20");
  list("jobs", jobs.data.map((job) => `${job.status} ${job.progress} % ${job.size} ${job.prompt}`));
};
await show();
setInterval(show, 2000);
