// The page's side of the worker: calls that it answers one after another.

const worker = new Worker("worker.js", { type: "module" });
const waiting = new Map();
let last = 0;

worker.addEventListener("message", ({ data: { id, result, error } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (error) reject(Object.assign(new Error(error.message), { name: error.name }));
  else resolve(result);
});
// The program itself could not be loaded, or it broke down.
worker.addEventListener("error", (event) => {
  event.preventDefault();
  for (const { reject } of waiting.values()) {
    reject(Object.assign(new Error(event.message || "the worker could not start"), { name: "Worker" }));
  }
  waiting.clear();
});

/** Calls a function of the worker. */
export const call = (name, ...args) =>
  new Promise((resolve, reject) => {
    last += 1;
    waiting.set(last, { resolve, reject });
    worker.postMessage({ id: last, name, args });
  });
