// Work in steps that a button starts, pauses and goes on with. One part works at a time, so that none disturbs
// another's measurement, and none works while nobody sees the page.

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

const time = (seconds) =>
  seconds < 90 ? `${10 * Math.ceil(seconds / 10)} seconds` : `${Math.round(seconds / 60)} minutes`;

export class Runner {
  #start;
  #button;
  #part;
  #work;
  #running = false;
  #loop = Promise.resolve();
  /** The fraction of the work that is done, that after the first step, and the seconds since. */
  #done = 1;
  #first = 1;
  #seconds = 0;

  /**
   * button: starts the work of its section; seconds: an estimate for all of it; work: { step, say, fail }. `step` does
   * a piece of work and resolves to the fraction that is done and a sentence; `say` shows one; `fail` gets an error.
   */
  constructor(button, seconds, work) {
    this.#start = button.textContent;
    this.#button = button;
    this.#part = button.closest("section");
    this.#work = work;
    work.say(`Takes about ${time(seconds)}.`);
    button.addEventListener("click", () => (this.#running ? this.pause() : this.start()));
  }

  start() {
    if (this.#running) return;
    active?.pause();
    active = this;
    this.#running = true;
    this.#button.textContent = "Pause";
    // An earlier loop ends after the step that it is in.
    this.#loop = this.#loop.then(() => this.#run());
  }

  pause() {
    if (this.#running) this.#stop("Resume");
  }

  #stop(word) {
    this.#running = false;
    this.#button.textContent = word;
  }

  async #step() {
    const begun = performance.now();
    if (this.#done === 1) this.#work.say("Preparing …");
    const [done, sentence] = await this.#work.step();
    // The first step, of this work or of the same begun anew, also prepares.
    if (done <= this.#done) [this.#first, this.#seconds] = [done, 0];
    else this.#seconds += (performance.now() - begun) / 1000;
    this.#done = done;
    const left = (this.#seconds * (1 - done)) / (done - this.#first);
    this.#work.say(left > 0 ? `${sentence} About ${time(left)} left.` : sentence);
    this.#part.querySelector("progress").value = done;
    for (const hidden of this.#part.querySelectorAll("[hidden]")) hidden.hidden = false;
    if (done === 1) this.#stop(this.#start);
  }

  async #run() {
    try {
      while (this.#running) {
        if (document.hidden) {
          this.#work.say("Paused while this tab is hidden.");
          await shown();
        } else await this.#step();
      }
    } catch (error) {
      this.#stop(this.#start);
      this.#work.fail(error);
      announce(error.message);
    }
  }
}
