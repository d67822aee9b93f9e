// The page of an endpoint: what a person writes is sent to /v1/rewards, and what comes back is shown.
// Everybody's text gets in through textContent or value alone. What is written lives in the form, nowhere else.

const $ = (id) => document.getElementById(id);

const EXAMPLE = {
  messages: [{ role: "user", content: "What is 3 + 4?" }],
  responses: ["7", "9", "Seven, I think."],
  principles: [],
};
const EXAMPLE_PRINCIPLE = "correctness";
const ROLES = ["system", "user", "assistant", "tool"];

const REASONS = {
  lone_surrogate: "it holds half a character, which is no text",
  no_messages: "the conversation has no turns, or none before the response",
  unknown_role: "a turn has a role that isn't known",
  tool_call: "a tool or its call that this model isn't shown, or that can't be read",
  no_final_assistant: "there is no answer at the end",
  content_not_text: "a turn holds something that isn't text",
  empty_content: "the response, or a turn before it, is empty",
  control_token: "it holds a text that the model would read as a control token",
  role_not_in_template: "the model can't be shown a turn of one of these roles",
  template_refused: "the model's chat template refuses this conversation",
  too_long: "the conversation is longer than the model takes",
  unknown_token: "it has a token id that the model doesn't have",
  too_many_prompts: "its responses, principles and orders come to more prompts than one conversation may",
  no_principle: "the model needs a principle to judge by",
  no_opponent: "the model only compares, and there is nothing to compare with",
  not_finite: "the model gave a number that isn't finite",
  engine_refused: "the engine refused the prompt",
  engine_timeout: "the model took too long",
  engine_killer: "the engine dies of this prompt",
  cut_off: "the judge's text was cut off before its verdict",
  no_verdict: "the judge's text has no verdict",
  two_verdicts: "the judge's text has verdicts that contradict each other",
  out_of_range: "the judge's verdict isn't on its scale",
};

/** What numbers of the table say with one family or one `aggregate` alone; all others are in MEANINGS. */
const SPECIAL_MEANINGS = {
  "math-process": {
    product: "the probability that all steps are right: the product over them",
    min: "the probability of the step that is least likely right",
    last: "the probability that the last step is right",
  },
  "mean-variance": { reward_std: "how unsure the model is of the mean: the standard deviation of the reward" },
  "five-class": { reward_std: "how far the ratings that it considers are apart: their standard deviation" },
  "reward-anything": { rank: "its place in the judge's ranking, of which 1 is the best; the mean of all judgements" },
  "win-rate": { reward_std: "how far the shares that it won against each other response are apart: their standard deviation" },
  "bradley-terry": { reward_std: "how uncertain the reward is: its standard error" },
};
const MEANINGS = {
  helpfulness: "how well it does what was asked",
  correctness: "whether what it says is right and complete",
  coherence: "how clear it is, and whether it agrees with itself",
  complexity: "how much knowledge it takes to write it; more isn't better by itself",
  verbosity: "how much it says beyond what was asked; more isn't better by itself",
  score: "the grade that the judge gave it; the mean of all judgements",
  margin: "how much better than the other one the judge found it: 2.5 is much better, −2.5 much worse",
  win: "1 where the judge found it the better one, 0 where the other, 0.5 where neither; the mean of all judgements",
  mean: "the mean of its ratings, or of its numbers by each principle",
  min: "the least of its numbers by each principle",
  diverging: "how far it is from the best other response, less how unsure the model is of both: above 0 they differ clearly",
  reward_std: "how far the judgements are apart: the standard deviation of their rewards, 0 where all say the same",
  judgements: "how many of the judge's texts about it had a verdict",
  win_rate: "the share of its comparisons that it won, from 0 to 1; a tie is half a win",
  losses: "how many of the other responses won against it",
  agreement: "the share of judgements that say the same as most do: 1 where all agree",
  both_orders: "how many others it was compared with twice, once shown before and once after them",
  order_decided: "with how many of these another one won in each order, so that the order decided",
  first_preferred: "with how many of these the one that was shown first won each time",
};
const AGGREGATES = {
  "win-rate": "reward = win_rate",
  "bradley-terry": "reward = how strongly it won its comparisons (Bradley-Terry)",
};

// ---- What is remembered while the tab is open

function remembered(name) {
  try {
    return sessionStorage.getItem(`assay.${name}`);
  } catch {
    return null; // a browser that keeps nothing
  }
}

function remember(name, value) {
  try {
    sessionStorage.setItem(`assay.${name}`, value);
  } catch {
    // full, or switched off: then a reload begins anew
  }
}

let key = remembered("key") ?? "";

// ---- The endpoint

/** What a person is told. */
class Problem extends Error {}

async function problemOf(response) {
  const told = await response.json().then((body) => body.error?.message, () => undefined);
  const wait = response.headers.get("Retry-After");
  const words = {
    401: "A valid API key is needed.",
    413: "That is too much for one request.",
    429: `The endpoint has too much to do.${wait ? ` Try again in ${wait} s.` : " Try again soon."}`,
    503: "The endpoint isn't ready. Try again soon.",
    504: "The answer took too long.",
  };
  const others = response.status < 500 ? "The request can't be done as it is." : "The endpoint failed.";
  const more = told && response.status !== 401 ? ` It says: ${told}` : "";
  return new Problem(`${words[response.status] ?? others}${more}`);
}

async function asked(path, init = {}) {
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...init, headers });
    if (response.ok) return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The endpoint can't be reached, or its answer can't be read. Is it still running?");
  }
  if (response.status === 401 && (await keyGiven(key && "The key that was given isn't accepted."))) return asked(path, init);
  throw await problemOf(response);
}

/** Ask for a key. Resolves to whether there is a new one. */
function keyGiven(problem = "") {
  const dialog = $("key-dialog");
  $("change-key").hidden = false;
  $("key-problem").textContent = problem;
  $("key").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "done"), { once: true });
  });
}

// ---- The form

const letter = (at) => (at < 26 ? "" : letter(Math.floor(at / 26) - 1)) + String.fromCharCode(65 + (at % 26));

const LISTS = {
  turn: { template: $("turn"), list: $("turns"), name: (at) => `turn ${at + 1}`, least: 1 },
  response: { template: $("text"), list: $("responses"), name: (at) => `response ${letter(at)}`, least: 1 },
  principle: { template: $("text"), list: $("principles"), name: (at) => `principle ${at + 1}`, least: 0 },
};

let models = [];
const model = () => models.find((one) => one.id === $("model").value);
const items = (kind) => [...LISTS[kind].list.children];
const field = (item) => item.querySelector("textarea");
const texts = (kind) => items(kind).map((item) => field(item).value);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

function draft() {
  const messages = items("turn").map((item) => ({ role: item.querySelector("select").value, content: field(item).value }));
  return { messages, responses: texts("response"), principles: texts("principle") };
}

function fill({ messages, responses, principles }) {
  for (const { list } of Object.values(LISTS)) list.replaceChildren();
  for (const { role, content } of messages) add("turn", content, role);
  for (const text of responses) add("response", text);
  for (const text of principles) add("principle", text);
  showModel();
}

function add(kind, text = "", role = "user") {
  const item = LISTS[kind].template.content.firstElementChild.cloneNode(true);
  const select = item.querySelector("select");
  if (select) {
    if (![...select.options].some((option) => option.value === role)) select.append(make("option", { text: role }));
    select.value = role;
  }
  field(item).value = text;
  item.querySelector(".remove").addEventListener("click", () => remove(kind, item));
  LISTS[kind].list.append(item);
  name(kind);
  return item;
}

/** The focus goes to what takes its place, or is before it, or could add another. */
function remove(kind, item) {
  const next = item.nextElementSibling ?? item.previousElementSibling;
  item.remove();
  if (items(kind).length < least(kind)) add(kind);
  const left = items(kind);
  (left.length ? field(left.includes(next) ? next : left[0]) : $(`add-${kind}`)).focus();
  name(kind);
  changed();
}

const least = (kind) => (kind === "principle" && model()?.needs_principles ? 1 : LISTS[kind].least);

function name(kind) {
  items(kind).forEach((item, at) => {
    const own = LISTS[kind].name(at);
    const labels = item.querySelectorAll(".unseen");
    if (labels.length > 1) labels[0].textContent = `Role of ${own}`;
    labels[labels.length - 1].textContent = capital(own);
    const mark = item.querySelector(".letter");
    if (mark) mark.textContent = own.split(" ")[1];
    field(item).required = kind === "principle" && at === 0 && Boolean(model()?.needs_principles);
    item.querySelector(".remove").setAttribute("aria-label", `Remove ${own}`);
  });
}

function changed() {
  remember("draft", JSON.stringify(draft()));
  showStale();
  uncleared = null;
  $("clear").textContent = "Clear";
}

/** Whether the rewards that are shown are of what is in the form. */
function showStale() {
  $("stale").hidden = shownRequest === null || shownRequest === JSON.stringify(request());
}

let shownRequest = null;
let uncleared = null;

function clear() {
  const before = draft();
  const next = uncleared ?? { messages: [{ role: "user", content: "" }], responses: [""], principles: [] };
  const undone = uncleared !== null;
  fill(next);
  changed();
  if (!undone) {
    uncleared = before;
    $("clear").textContent = "Undo clear";
  }
  tell(undone ? "What was there is back." : "Cleared.");
}

function showModel() {
  const own = model();
  if (!own) return;
  const outputs = own.outputs.length;
  const facts = [
    own.kind === "judge" ? "judge that writes" : own.kind === "verifier" ? "no weights" : outputs > 1 ? `head with ${outputs} outputs` : "head with one output",
    own.compares ? "compares responses" : "",
    `range: ${own.range}`,
    own.max_model_len ? `up to ${own.max_model_len.toLocaleString("en")} tokens` : "",
  ];
  $("model-facts").textContent = capital(facts.filter(Boolean).join("\u00a0· "));
  $("principles-section").hidden = !own.takes_principles;
  $("principles-note").textContent = own.needs_principles ? "This model needs at least one." : "What it judges by, if you like.";
  if (own.needs_principles && !items("principle").length) {
    const untouched = JSON.stringify(draft()) === JSON.stringify(EXAMPLE);
    add("principle", untouched ? EXAMPLE_PRINCIPLE : "");
  }
  name("principle");
}

async function loadModels() {
  try {
    models = (await asked("v1/models")).data;
  } catch (error) {
    complain(`${error.message} Press Score to try again.`);
    return;
  }
  complain("");
  $("model").replaceChildren(...models.map((one) => make("option", { text: one.id })));
  const last = remembered("model");
  if (models.some((one) => one.id === last)) $("model").value = last;
  showModel();
}

// ---- Scoring

let underWay = null;

function request() {
  const { messages, responses, principles } = draft();
  const conversation = { messages, responses };
  if (model().takes_principles) conversation.principles = principles.filter((text) => text.trim());
  return { model: model().id, conversations: [conversation], trace: true };
}

/** The page opens with its example judged, unless a person has begun something: then nothing is sent unasked. */
async function scoreExample() {
  if (model() && shownRequest === null && remembered("draft") === null) await score(true);
}

async function score(unasked = false) {
  if (underWay) return;
  // Before the models are waited for: another press meanwhile would send another request.
  underWay = new AbortController();
  try {
    if (!model()) await loadModels();
    if (model()) await judge(underWay.signal, unasked);
  } finally {
    underWay = null;
    wait(false);
  }
}

async function judge(signal, unasked) {
  const sent = request();
  const own = model();
  const began = performance.now();
  complain("");
  tell(`Waiting for ${own.id}…`);
  wait(true);
  try {
    const body = JSON.stringify(sent);
    const { data, usage } = await asked("v1/rewards", { method: "POST", body, signal });
    show(data[0], sent.conversations[0].responses, own, usage, (performance.now() - began) / 1000);
    if (!unasked) scrollToResults();
    shownRequest = JSON.stringify(sent);
    showStale();
  } catch (error) {
    tell("");
    if (error.name === "AbortError") tell("Cancelled.");
    else if (unasked) tell(`The example isn't scored. ${error.message}`);
    else complain(error.message);
    if (!(error instanceof Problem) && error.name !== "AbortError") throw error;
  }
}

/** A button that is disabled or hidden can't have the focus: it goes to the one that is there instead. */
function wait(waiting) {
  const focused = document.activeElement;
  $("cancel").hidden = !waiting;
  if (waiting && focused === $("score")) $("cancel").focus();
  $("score").disabled = waiting;
  $("score").textContent = waiting ? "Scoring…" : "Score";
  $("results").setAttribute("aria-busy", String(waiting));
  if (!waiting && focused === $("cancel")) $("score").focus();
}

function tell(text) {
  $("told").textContent = text;
}

function complain(text) {
  $("problem").textContent = text;
}

// ---- Results

/** An element with a class, attributes and text, and what is in it. */
function make(tag, { text, cls, ...attributes } = {}, ...inside) {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  made.append(...inside.filter(Boolean));
  return made;
}

/** As many decimals as show four digits of the largest, and none for whole numbers. */
function decimals(numbers) {
  if (numbers.every(Number.isInteger)) return 0;
  const largest = Math.max(...numbers.map(Math.abs));
  return Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest))));
}

const shown = (value, digits) => value.toFixed(digits).replace("-", "−");
const number = (value, digits, cls = "number") =>
  make("data", { cls, value: String(value), title: String(value), text: shown(value, digits) });
const count = (howMany, what) => `${howMany.toLocaleString("en")} ${what}${howMany === 1 ? "" : "s"}`;
const inWords = (reason) => REASONS[reason] ?? reason;

function show({ responses, ranking }, given, own, usage, seconds) {
  const rewards = ranking.map((at) => responses[at].reward);
  const scale = {
    low: Math.min(0, ...rewards),
    high: Math.max(0, ...rewards),
    digits: decimals(rewards),
    rank: (reward) => rewards.filter((other) => other > reward).length + 1, // equal ones share a rank
  };
  const others = responses.map((_, at) => at).filter((at) => !ranking.includes(at));
  const results = [...ranking, ...others].map((at) => result(responses[at], at, given[at], scale));
  $("nothing").hidden = true;
  $("ranking").replaceChildren(...results);
  $("scores").replaceChildren(...table(ranking, responses, own));
  $("caption").textContent = `${own.id}, ${seconds.toFixed(2)} s, ${tokens(usage)}. Bars begin at 0. Range: ${own.range}.`;
  const best = ranking.length > 1 ? ` Best: ${letter(ranking[0])}, ${shown(rewards[0], scale.digits)}.` : "";
  tell(`${ranking.length} of ${count(responses.length, "response")} scored.${best}`);
}

/** Nothing else scrolls smoothly: the bar of the Score button moves with it at the end, away from under a click. */
function scrollToResults() {
  const behavior = matchMedia("(prefers-reduced-motion: no-preference)").matches ? "smooth" : "instant";
  if ($("results-title").getBoundingClientRect().top > innerHeight * 0.8) $("results").scrollIntoView({ behavior });
}

function tokens({ prompt_tokens: read, completion_tokens: written }) {
  return [count(read ?? 0, "token") + " read", written ? count(written, "token") + " written" : ""].filter(Boolean).join(", ");
}

function result(one, at, text, scale) {
  const scored = one.reward !== null;
  const facts = [
    one.truncated ? "earlier turns were left out to make it fit" : "",
    one.prompt_tokens ? tokens(one) : "",
    one.steps ? `steps ${one.steps.map((step) => shown(step, 3)).join(", ")}` : "",
  ].filter(Boolean);
  return make(
    "li", { cls: `result ${one.status}` },
    make(
      "div", { cls: "head" },
      make("span", { cls: "rank", text: scored ? `${scale.rank(one.reward)}.` : "–" }),
      make("span", { cls: "letter", text: letter(at) }),
      make("p", { cls: "said", text }),
      scored && number(one.reward, scale.digits, "reward"),
    ),
    scored ? bar(one.reward, scale) : why(one),
    facts.length && make("p", { cls: "note", text: capital(facts.join(" · ")) }),
    ...(one.trace ?? []).map(judgement),
  );
}

function bar(reward, { low, high }) {
  const share = (value) => `${((value - low) / (high - low || 1)) * 100}%`;
  const filled = make("span", { cls: reward < 0 ? "fill negative" : "fill" });
  filled.style.setProperty("left", share(Math.min(0, reward)));
  filled.style.setProperty("width", `${(Math.abs(reward) / (high - low || 1)) * 100}%`);
  const zero = make("span", { cls: "zero" });
  zero.style.setProperty("left", share(0));
  return make("div", { cls: "bar", "aria-hidden": "true" }, filled, zero);
}

function why({ status, reason }) {
  const words = reason ? `${capital(status)}: ${inWords(reason)} ` : capital(status);
  return make("p", { cls: "why", text: words }, reason && make("code", { text: reason }));
}

function judgement(said, at) {
  const vote = said.vote === null ? `no vote: ${inWords(said.reason)}` : `vote ${shown(said.vote, decimals([said.vote]))}`;
  const order = said.shown.map((name_) => letter(Number(/\d+/.exec(name_)?.[0] ?? 0))).join(", ");
  const facts = [
    `Judgement ${at + 1}`,
    vote,
    said.shown.length > 1 ? `shown in the order ${order}` : "",
    said.finish_reason === "length" ? "cut off" : "",
  ];
  return make(
    "details", { cls: "judgement" },
    make("summary", { text: facts.filter(Boolean).join(" · ") }),
    said.principle && make("p", { cls: "note", text: `Principle: ${said.principle}` }),
    make("pre", { text: said.text }),
  );
}

/** The named scores beside each other: a row for each, a column for each response, the best first. */
function table(ranking, responses, own) {
  const names = [...new Set(ranking.flatMap((at) => Object.keys(responses[at].scores)))];
  const alone = names.length === 1 && ranking.every((at) => responses[at].scores[names[0]] === responses[at].reward);
  if (!names.length || alone) return [];
  const row = (output) => {
    const values = ranking.map((at) => responses[at].scores[output]);
    const digits = decimals(values.filter((value) => value !== undefined));
    const cells = values.map((value) => make("td", {}, value !== undefined && number(value, digits)));
    return make("tr", {}, make("th", { scope: "row", text: output }), ...cells);
  };
  const heads = ranking.map((at) => make("th", { scope: "col" }, make("span", { cls: "letter", text: letter(at) })));
  return [
    make(
      "table", {},
      make("caption", { text: "Scores" }),
      make("thead", {}, make("tr", {}, make("td"), ...heads)),
      make("tbody", {}, ...names.map(row)),
    ),
    make("p", { cls: "formula", text: formula(own) }),
    legend(names, own),
  ];
}

/** How the reward comes from the scores. */
function formula({ weights, aggregate, kind }) {
  if (AGGREGATES[aggregate]) return AGGREGATES[aggregate];
  const terms = Object.entries(weights).filter(([, weight]) => weight);
  if (!terms.length) return "reward = the least of the scores by each principle";
  const sum = terms.map(([output, weight], at) => {
    const sign = weight < 0 ? "− " : at ? "+ " : "";
    const size = Math.abs(weight);
    return `${sign}${size === 1 ? "" : `${Number(size.toPrecision(4))}\u00a0× `}${output}`;
  });
  return `reward = ${sum.join(" ")}${kind === "judge" ? ", the mean of all judgements" : ""}`;
}

/** What each of the scores says, in plain words: where a phone has no pointer to hover with, it can still be opened. */
function legend(names, { family, kind, aggregate }) {
  const other = kind === "judge" ? "a number that the judge's text gives by this name" : "an output of the model by this name";
  const known = { ...MEANINGS, ...SPECIAL_MEANINGS[family], ...SPECIAL_MEANINGS[aggregate] };
  const entries = names.flatMap((output) => [make("dt", { text: output }), make("dd", { text: known[output] ?? other })]);
  return make("details", { cls: "legend" }, make("summary", { text: "What these numbers say" }), make("dl", {}, ...entries));
}

// ---- JSON and curl

/** What the form is filled with. Throws `Problem`. */
function read(json) {
  let value;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new Problem(`This isn't JSON: ${error.message}`);
  }
  if (value?.conversations?.length === 1) [value] = value.conversations; // a whole request
  const given = Array.isArray(value) ? value : value?.messages;
  if (!Array.isArray(given)) throw new Problem('There are no messages: a list is needed, or {"messages": [...]}.');
  if (!given.length) throw new Problem("The list of messages is empty.");
  const messages = given.map(turn);
  const responses = strings(value.responses, "responses");
  if (messages.at(-1).role === "assistant") responses.unshift(messages.pop().content);
  if (!messages.length) throw new Problem("There is an answer, and no turn before it.");
  return { messages, responses: responses.length ? responses : [""], principles: strings(value.principles, "principles") };
}

function turn(given, at) {
  const { role, content } = given ?? {};
  if (!ROLES.includes(role)) {
    const told = role === undefined ? "has no role" : `has the role ${JSON.stringify(role)}`;
    throw new Problem(`Message ${at + 1} ${told}; it can be ${ROLES.join(", ")}.`);
  }
  const parts = Array.isArray(content) ? content.map((part) => part?.text) : [content];
  if (parts.every((part) => typeof part === "string")) return { role, content: parts.join("") };
  throw new Problem(`Message ${at + 1} has a content that isn't text alone.`);
}

function strings(value, what) {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) return [...value];
  throw new Problem(`"${what}" must be a list of texts.`);
}

function paste(event) {
  event.preventDefault();
  try {
    fill(read($("paste-text").value));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    $("paste-problem").textContent = error.message;
    $("paste-text").focus();
    return;
  }
  $("paste-dialog").close();
  changed();
  field(items("response")[0]).focus();
  tell(`${count(items("turn").length, "turn")} and ${count(items("response").length, "response")} are in the form.`);
}

function command() {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [
    `curl -sS ${quoted(new URL("v1/rewards", document.baseURI).href)}`,
    `-H 'Content-Type: application/json'`,
    ...(key ? ['-H "Authorization: Bearer $ASSAY_API_KEY"'] : []),
    `-d ${quoted(JSON.stringify(request()))}`,
  ].join(" \\\n  ");
}

async function copy() {
  if (!model()) return complain("There is no model yet. Press Score to try again.");
  try {
    await navigator.clipboard.writeText(command());
    tell("Copied.");
  } catch {
    $("curl-text").value = command(); // pages that don't come through HTTPS may not copy
    $("curl-dialog").showModal();
    $("curl-text").select();
  }
}

// ---- What a person does

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  score();
});
$("ask").addEventListener("input", changed);
$("cancel").addEventListener("click", () => underWay?.abort());
$("curl").addEventListener("click", copy);
$("clear").addEventListener("click", clear);
$("model").addEventListener("change", () => {
  remember("model", $("model").value);
  showModel();
  showStale();
});
for (const kind of Object.keys(LISTS)) {
  $(`add-${kind}`).addEventListener("click", () => {
    const role = kind === "turn" && items("turn").at(-1)?.querySelector("select").value === "user" ? "assistant" : "user";
    field(add(kind, "", role)).focus();
    changed();
  });
}
$("paste").addEventListener("click", () => {
  $("paste-problem").textContent = "";
  $("paste-dialog").showModal();
  $("paste-text").select();
});
$("paste-dialog").querySelector("form").addEventListener("submit", paste);
$("key-dialog").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value;
  remember("key", key);
  $("key").value = "";
  $("key-dialog").close("done");
});
$("change-key").addEventListener("click", async () => {
  if (await keyGiven()) await loadModels();
});
for (const button of document.querySelectorAll("dialog .close")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!underWay || document.querySelector("dialog[open]")) (document.querySelector("dialog[open] form") ?? $("ask")).requestSubmit();
});

$("change-key").hidden = !key;
try {
  fill(JSON.parse(remembered("draft")) ?? EXAMPLE);
} catch {
  fill(EXAMPLE); // what is remembered is of another version
}
// Until then the button is disabled: what is told of the model moves it, and a click that is under way would miss it.
await loadModels();
$("score").disabled = Boolean(underWay);
await scoreExample();
