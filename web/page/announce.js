// Tells screen readers what matters. The parts' own sentences change too often to be read out.

const region = document.getElementById("announcement");

export const announce = (sentence) => (region.textContent = sentence);
