// Work in steps that a button starts, pauses and goes on with. One part works at a time, so that none disturbs another's
// measurement, and none works while nobody sees the page.

import { announce } from "./announce.js";

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
    this.#stop(words.start);
    button.addEventListener("click", () => (this.#running ? this.pause() : this.start()));
  }

  start() {
    if (this.#running) return;
    active?.pause();
    active = this;
    this.#running = true;
    this.#button.textContent = this.#words.pause;
    // An earlier loop ends after the step that it is in.
    this.#loop = this.#loop.then(() => this.#run());
  }

  pause() {
    if (this.#running) this.#stop(this.#words.resume);
  }

  #stop(word) {
    this.#running = false;
    this.#button.textContent = word;
  }

  async #run() {
    const { step, say, fail } = this.#work;
    try {
      while (this.#running) {
        if (document.hidden) {
          say("Paused while this tab is hidden.");
          await shown();
        } else if (!(await step())) this.#stop(this.#words.start);
      }
    } catch (error) {
      this.#stop(this.#words.start);
      fail(error);
      announce(error.message);
    }
  }
}
