// While a run lasts, its page is written again and again: this loads the newest one. What the
// reader has chosen and the place on the page stay.
(function () {
  "use strict";
  const KEPT = "electra_jax " + location.pathname;

  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
    sessionStorage.removeItem(KEPT);
    if (kept) {
      for (const id of kept.chosen) {
        const button = document.getElementById(id);
        if (button) button.checked = true;
      }
      for (const id of kept.open) {
        const folded = document.getElementById(id);
        if (folded) folded.open = true;
      }
      window.scrollTo(0, kept.scroll);
    }
  } catch (error) { /* a browser that keeps nothing begins at the top */ }

  // A copy inside another page, as in a notebook, has no newer file to load.
  const live = document.querySelector("[data-refresh]");
  if (!live || window !== window.top) return;
  setTimeout(function () {
    const chosen = [...document.querySelectorAll("input:checked")].map((input) => input.id);
    const open = [...document.querySelectorAll("details[open]")].map((part) => part.id);
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ chosen, open, scroll: window.scrollY }));
    } catch (error) { /* as above */ }
    history.scrollRestoration = "manual";  // or the browser would scroll too, at another moment
    location.reload();
  }, 1000 * Number(live.dataset.refresh));
})();
