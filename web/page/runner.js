// Work in steps that a button starts, pauses and goes on with. One part works at a time, so that none disturbs another's
// measurement, and none works while nobody sees the page.

let active = null;

const shown = () =>
  new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });

export class Runner {
  #words;
  #button;
  #work;
  #running = false;
  #loop = Promise.resolve();

  /**
   * words: the button's texts { start, pause, resume }; work: { step, say, fail }. `step` does a piece of work and
   * resolves to whether there is more; `say` shows a sentence; `fail` gets an error.
   */
  constructor(button, words, work) {
    this.#button = button;
    this.#words = words;
    this.#work = work;
    this.reset();
    button.addEventListener("click", () => (this.#running ? this.pause() : this.start()));
  }

  get running() {
    return this.#running;
  }

  start() {
    if (this.#running) return;
    if (active !== this) active?.pause();
    active = this;
    this.#running = true;
    this.#button.textContent = this.#words.pause;
    // An earlier loop ends after the step that it is in.
    this.#loop = this.#loop.then(() => this.#run());
  }

  pause() {
    if (!this.#running) return;
    this.#running = false;
    this.#button.textContent = this.#words.resume;
  }

  /** Waits for the step under way, and offers to start anew. */
  async reset() {
    this.#running = false;
    this.#button.textContent = this.#words.start;
    await this.#loop;
  }

  async #run() {
    try {
      while (this.#running) {
        if (document.hidden) {
          this.#work.say("Paused while this tab is hidden.");
          await shown();
          this.#work.say("");
          continue;
        }
        if (!(await this.#work.step())) {
          this.#running = false;
          this.#button.textContent = this.#words.start;
        }
      }
    } catch (error) {
      this.#running = false;
      this.#button.textContent = this.#words.start;
      this.#work.fail(error);
    }
  }
}
