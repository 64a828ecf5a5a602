// The page's side of the worker: calls that it answers one after another.

const worker = new Worker("worker.js", { type: "module" });
const waiting = new Map();
let last = 0;
let broken = null;

const named = (name, message) => Object.assign(new Error(message), { name });

worker.addEventListener("message", ({ data: { id, result, error } }) => {
  const call = waiting.get(id);
  waiting.delete(id);
  if (error) call?.reject(named(error.name, error.message));
  else call?.resolve(result);
});
// The worker could not start, or its program broke down. It answers no more.
worker.addEventListener("error", (event) => {
  event.preventDefault();
  broken = named("Worker", event.message || "the worker could not start");
  for (const { reject } of waiting.values()) reject(broken);
  waiting.clear();
});

/** Calls a function of the worker. */
export const call = (name, ...args) =>
  new Promise((resolve, reject) => {
    if (broken) throw broken;
    last += 1;
    waiting.set(last, { resolve, reject });
    worker.postMessage({ id: last, name, args });
  });
