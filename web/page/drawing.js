// A pad to draw a digit on, and the 8 × 8 pixels that the networks see: as the images that they learn from were made, the
// drawing is scaled to the whole pad of 32 × 32, and each pixel counts the inked ones of a block of 4 × 4.

const SIDE = 32;
const BLOCK = 4;
const SEEN = SIDE / BLOCK;
/** The pen's radius. */
const PEN = 1.6;

/** The pixels of a 32 × 32 drawing, scaled so that its longer side fills the pad, from 0 to 1; null if it is empty. */
const seenPixels = (inked) => {
  const places = [...inked.keys()].filter((place) => inked[place]);
  if (places.length === 0) return null;
  const [columns, lines] = [places.map((place) => place % SIDE), places.map((place) => Math.floor(place / SIDE))];
  const [left, top] = [Math.min(...columns), Math.min(...lines)];
  const [width, height] = [Math.max(...columns) - left + 1, Math.max(...lines) - top + 1];
  const size = Math.max(width, height, SIDE / 4);
  const pixels = new Float32Array(SEEN * SEEN);
  for (let y = 0; y < SIDE; y++) {
    for (let x = 0; x < SIDE; x++) {
      const column = Math.floor(left + width / 2 + ((x + 0.5) / SIDE - 0.5) * size);
      const line = Math.floor(top + height / 2 + ((y + 0.5) / SIDE - 0.5) * size);
      const inside = column >= 0 && column < SIDE && line >= 0 && line < SIDE;
      if (inside && inked[line * SIDE + column]) {
        pixels[Math.floor(y / BLOCK) * SEEN + Math.floor(x / BLOCK)] += 1 / (BLOCK * BLOCK);
      }
    }
  }
  return pixels;
};

/** Fills a canvas with pixels from 0 to 1, in its text colour. */
const paint = (canvas, side, pixel) => {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, side, side);
  context.fillStyle = getComputedStyle(canvas).color;
  for (let place = 0; place < side * side; place++) {
    context.globalAlpha = pixel(place);
    context.fillRect(place % side, Math.floor(place / side), 1, 1);
  }
  context.globalAlpha = 1;
  return context;
};

/**
 * Lets people draw on a pad; `changed` gets the pixels, or null once the pad is empty, and `pen` whether the keyboard's
 * pen is down.
 */
export const drawing = ({ pad, seen, clear, changed, pen }) => {
  const inked = new Array(SIDE * SIDE).fill(false);
  let cursor = { x: SIDE / 2, y: SIDE / 4 };
  let showsCursor = false;
  let last = null;

  const show = () => {
    const context = paint(pad, SIDE, (place) => Number(inked[place]));
    if (showsCursor) {
      context.fillStyle = getComputedStyle(pad).accentColor;
      context.fillRect(cursor.x - 1, cursor.y - 1, 3, 3);
    }
    const pixels = seenPixels(inked);
    paint(seen, SEEN, (place) => pixels?.[place] ?? 0);
    return pixels;
  };

  const dot = ({ x, y }) => {
    for (let line = 0; line < SIDE; line++) {
      for (let column = 0; column < SIDE; column++) {
        if (Math.hypot(column - x, line - y) <= PEN) inked[line * SIDE + column] = true;
      }
    }
  };
  const stroke = (from, to) => {
    const steps = Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y)));
    for (let step = 0; step <= steps; step++) {
      const part = step / steps;
      dot({ x: from.x + part * (to.x - from.x), y: from.y + part * (to.y - from.y) });
    }
  };

  const place = (event) => {
    const box = pad.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * SIDE - 0.5,
      y: ((event.clientY - box.top) / box.height) * SIDE - 0.5,
    };
  };
  pad.addEventListener("pointerdown", (event) => {
    if (!event.isPrimary || event.button) return;
    pad.setPointerCapture(event.pointerId);
    last = place(event);
    dot(last);
    show();
  });
  pad.addEventListener("pointermove", (event) => {
    if (!last || !event.isPrimary) return;
    const next = place(event);
    stroke(last, next);
    last = next;
    show();
  });
  const up = () => {
    if (!last) return;
    last = null;
    changed(show());
  };
  pad.addEventListener("pointerup", up);
  pad.addEventListener("pointercancel", up);

  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  let painting = false;
  const lift = (down) => {
    painting = down;
    pen(down);
  };
  pad.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move && event.key !== " ") return;
    event.preventDefault();
    const from = cursor;
    if (move) {
      const within = (value) => Math.min(SIDE - 1, Math.max(0, value));
      cursor = { x: within(cursor.x + move[0]), y: within(cursor.y + move[1]) };
    } else lift(!painting);
    showsCursor = true;
    if (painting) stroke(from, cursor);
    const pixels = show();
    if (painting) changed(pixels);
  });
  // A pointer focuses the pad too, but needs no cursor.
  pad.addEventListener("focus", () => {
    showsCursor = pad.matches(":focus-visible");
    show();
  });
  pad.addEventListener("blur", () => {
    showsCursor = false;
    lift(false);
    show();
  });

  clear.addEventListener("click", () => {
    inked.fill(false);
    changed(show());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
};
