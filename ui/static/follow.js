// The live view: server-sent events in a table, the newest message first.
"use strict";
const MOST = 200;
const table = document.getElementById("messages");
const body = table.tBodies[0];
const state = document.getElementById("state");
const pause = document.getElementById("pause");
let source = null;
let last = "";
let count = 0;

function cell(row, text, kind) {
  const found = row.insertCell();
  found.textContent = text;
  found.className = kind;
}

function show(event) {
  last = event.lastEventId;
  const message = JSON.parse(event.data);
  for (const cells of message.rows) {
    const row = body.insertRow(0);
    cell(row, message.partition, "n");
    cell(row, message.offset, "n");
    cell(row, message.time, "time");
    cell(row, message.key === null ? "" : message.key, "cell");
    cell(row, cells.join(" | "), "cell");
  }
  while (body.rows.length > MOST) body.deleteRow(-1);
  count += 1;
  state.textContent = `Following: ${count} messages`;
}

function skip(event) {
  last = event.lastEventId;
  const row = body.insertRow(0);
  const found = row.insertCell();
  found.colSpan = 5;
  found.textContent = event.data === "null"
    ? "The view was paused for long: messages may be missing here."
    : `${event.data} messages were skipped: there were too many`;
}

function fail(event) {
  stop();
  pause.hidden = true;
  const error = JSON.parse(event.data);
  state.textContent = error.remedy ? `${error.what}. Remedy: ${error.remedy}` : error.what;
}

function stop() {
  source.close();
  source = null;
  pause.textContent = "Continue";
}

function start() {
  const address = new URL(table.dataset.events, location.href);
  if (last) address.searchParams.set("after", last);
  source = new EventSource(address);
  source.onopen = () => { state.textContent = `Following: ${count} messages`; };
  source.onmessage = show;
  source.addEventListener("skipped", skip);
  source.addEventListener("failed", fail);
  source.onerror = () => {
    // A browser asks again by itself after an answer, but not after a refusal.
    if (source && source.readyState === EventSource.CLOSED) {
      stop();
      state.textContent = "The server refused: there may be too many live views.";
    }
  };
  pause.hidden = false;
  pause.textContent = "Pause";
}

pause.addEventListener("click", () => {
  if (source) {
    stop();
    state.textContent = `Paused: ${count} messages`;
  } else {
    start();
  }
});
start();
