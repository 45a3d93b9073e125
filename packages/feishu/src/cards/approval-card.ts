import { decidersText, maskedArguments, ruleText } from "@larkline/agent/permissions";
import { textIn, type ReplyLanguage, type Sender } from "@larkline/protocol";
import {
  asksRequesterAlone,
  type Approval,
  type ApprovalDecision,
  type ApprovalState,
  type AskedForm,
  type FormField,
  type SettledState,
} from "@larkline/protocol/approval";
import {
  button,
  buttonRow,
  cardInLanguages,
  fits,
  foldedPanel,
  headWithin,
  localTime,
  markdown,
  plainText,
  type CardElement,
  type TextRoom,
} from "./card.ts";
import { fenced, inlineText, invisible, visibleJson, visibleText } from "./answer.ts";
import { scopeWords } from "./scope-words.ts";
import { cardTexts } from "./texts.ts";

/** An approval and what has become of it, as far as its card shows it. */
export interface ShownApproval {
  approval: Approval;
  state: ApprovalState;
  /** In the order they were taken. */
  decisions: readonly ApprovalDecision[];
  /** For a `consent`: how far it has come. */
  consent?: ShownConsent;
}

/** How far the question to a person has come whether the app may act as them. */
export interface ShownConsent {
  /** `moved`: a later card asks; `ended`: it is settled. The others are those of `PendingConsent`. */
  state: "waiting" | "ran_out" | "other_person" | "trouble" | "moved" | "ended";
  /** The card asks for it: it is sent where it is not there yet. */
  asks?: boolean;
  link?: string;
  /** When the link was made and when it runs out, epoch ms. */
  startedAtMs?: number;
  endsAtMs?: number;
  scopes?: readonly string[];
}

export interface ApprovalCardOptions {
  /** Default: that of the approval. */
  language?: ReplyLanguage;
  /** Pending cards only: with the form for a rejection and its reason, in place of the button that opens it. */
  asksReason?: boolean;
  /** Settled cards only: leaves out what people and models wrote, for when the platform refuses it. */
  bare?: boolean;
}

/**
 * The card of an approval (JSON 2.0, below 30 KB whatever the approval holds): with buttons while it is
 * pending, without any once it is settled. Text of models and people is in code blocks and plain texts, which it
 * cannot leave; secrets are masked; the card says how much is not shown.
 */
export function approvalCard(
  status: ShownApproval,
  {
    language = status.approval.language,
    asksReason = false,
    bare = false,
  }: ApprovalCardOptions = {},
): CardElement {
  const { state, approval } = status;
  const { kind, bilingual } = approval;
  return cardInLanguages({ language, bilingual }, (each) => {
    if (kind === "question") return questionCard(status, { state, language: each, bare });
    if (kind === "consent") return consentCard(status, { state, language: each, bare });
    return state === "pending"
      ? pendingCard({ ...status, kind }, each, asksReason)
      : settledCard({ ...status, kind }, { state, language: each, bare });
  });
}

/** Identifies what the card shows: two statuses with the same mark have the same card. */
export function approvalMark({ state, decisions, consent }: ShownApproval): string {
  if (state === "pending" && consent !== undefined) {
    return `pending-${consent.state}-${consent.startedAtMs ?? 0}`;
  }
  return state === "pending" && decisions.length > 0 ? `pending-${decisions.length}` : state;
}

const ruleRoom: TextRoom = { characters: 2_000, bytes: 7_500 };

const settledTemplates: Partial<Record<SettledState, string>> = {
  approved: "green",
  retried: "green",
  done: "green",
  answered: "green",
};

/** A tool's name within markdown: unchanged when it holds no markup, as nearly always. */
function markdownName(tool: string): string {
  const name = shownName(tool);
  if (/^[A-Za-z\d]+(?:[_-][A-Za-z\d]+)*$/.test(name)) return name;
  return `${invisible}${inlineText(name)}${invisible}`;
}

function titled(given: string, template: string, elements: CardElement[]): CardElement {
  const title = withoutBlanksAtQuotes(given);
  return {
    schema: "2.0",
    config: { update_multi: true, enable_forward: false, summary: { content: title } },
    header: { title: plainText(title), template },
    body: { direction: "vertical", elements },
  };
}

/** Chinese has no blanks beside quotation marks: those in a title stand around the title of a tool. */
function withoutBlanksAtQuotes(title: string): string {
  return title.replaceAll(/(?<=\p{Script=Han}) (?=“)|(?<=”) (?=\p{Script=Han}|？)/gu, "");
}

function ruleOf({ remember, tool }: Approval): string {
  return visibleText(ruleText(remember ?? { tool, pattern: "" }));
}

function ruleBlock(approval: Approval): string {
  return fenced(shownWords(ruleOf(approval), ruleRoom));
}

/** One that asks for a decision. */
type ShownDecision = ShownApproval & { kind: Exclude<Approval["kind"], "question" | "consent"> };

/** Says what is asked about, where no sentence about the call does. */
export function askTitle(approval: Approval, language: ReplyLanguage): CardElement[] {
  if (approval.words?.summary !== undefined) return [];
  const title = cardTexts[language].approval.kinds.call.title(toolOf(approval, language));
  return [
    { tag: "div", text: { ...plainText(withoutBlanksAtQuotes(title)), text_size: "heading" } },
  ];
}

/** What is asked. With a sentence about the call the arguments are folded, unless they are what has to be read. */
export function question(
  { approval, kind }: ShownDecision,
  language: ReplyLanguage,
): CardElement[] {
  const { words, risk } = approval;
  if (kind === "call" && words?.summary !== undefined) {
    const sentence = shownWords(textIn(words.summary, language), sentenceRoom);
    const { panel, left } = panelOf(textOf(approval), language);
    const isOpen = risk === "high" || sentence.includes("…");
    return [
      { tag: "div", text: { ...plainText(sentence), text_size: "heading" } },
      { ...panel, expanded: isOpen },
      ...notShown(left, language),
    ];
  }
  const text = cardTexts[language].approval.kinds[kind].question(markdownName(approval.tool));
  if (kind === "rule") {
    return [markdown(`${text}\n${ruleBlock(approval)}`), ...ruleScope(approval, language)];
  }
  const { block, more } = shownArguments(approval, language);
  return [markdown(`${text}\n${block}`), ...more];
}

/** The rows of an open approval, and its forms. */
export function buttons(
  approval: Approval,
  language: ReplyLanguage,
  asksReason: boolean,
): CardElement[] {
  const { kind } = approval;
  if (kind === "outcome") {
    const row = buttonRow([retryButton(approval, language), abortButton(approval, language)]);
    return [row, doneForm(approval, language)];
  }
  const approve = approveButton(approval, language);
  const reject = rejectButton(approval, language);
  // A person must not agree to a rule that is not shown whole.
  if (kind === "rule") {
    return [buttonRow(fits(ruleOf(approval), ruleRoom) ? [approve, reject] : [reject])];
  }
  const always = alwaysButton(approval, language);
  if (!asksReason) return [buttonRow([approve, reject, whyButton(approval, language), ...always])];
  return [buttonRow([approve, reject, ...always]), rejectForm(approval, language)];
}

function pendingCard(
  status: ShownDecision,
  language: ReplyLanguage,
  asksReason: boolean,
): CardElement {
  const { approval, decisions, kind } = status;
  const title = cardTexts[language].approval.kinds[kind].title(toolOf(approval, language));
  return titled(title, approval.risk === "high" ? "red" : "orange", [
    ...question(status, language),
    ...openFacts(approval, language),
    ...progress(approval, decisions, language),
    ...buttons(approval, language, asksReason),
  ]);
}

interface Settled {
  state: SettledState;
  language: ReplyLanguage;
  bare: boolean;
}

function record(approval: Approval, language: ReplyLanguage): CardElement {
  return approval.kind === "rule"
    ? markdown(ruleBlock(approval))
    : argumentsPanel(approval, language);
}

function settledCard(
  { approval, decisions, kind }: ShownDecision,
  { state, language, bare }: Settled,
): CardElement {
  const { endings } = cardTexts[language].approval.kinds[kind];
  const { title, text } = endings[state] ?? endings.cancelled;
  const words = bare
    ? markdown(text(markdownName(approval.tool)))
    : outcomeWords(approval, text, language);
  const more = bare ? [] : [...decidedFacts(decisions, language), record(approval, language)];
  return titled(
    title(bare ? shownName(approval.tool) : toolOf(approval, language)),
    settledTemplates[state] ?? "grey",
    [words, ...more],
  );
}

/** The tool as people read it: by its title, else by its name. */
function toolOf({ tool, words }: Approval, language: ReplyLanguage): string {
  return words?.title === undefined
    ? shownName(tool)
    : `“${shownName(textIn(words.title, language))}”`;
}

/** What became of the call: its sentence, where there is one and the title says how it ended. */
function outcomeWords(
  approval: Approval,
  text: (tool: string) => string,
  language: ReplyLanguage,
): CardElement {
  const { kind, words, tool } = approval;
  if (kind !== "call" || words?.summary === undefined) return markdown(text(markdownName(tool)));
  return line(shownWords(textIn(words.summary, language), sentenceRoom));
}

const sentenceRoom: TextRoom = { characters: 400, bytes: 1_200 };

/** Shorter arguments are shown whole; of longer ones the beginning. */
const openRoom: TextRoom = { characters: 600, bytes: 1_500 };
const openLines = 16;
/** What a person is expected to unfold and read at most. */
const foldedRoom: TextRoom = { characters: 6_000, bytes: 8_000 };
/** Longer ones are not indented: deep nesting would multiply their length. */
const maxIndented = 12_000;
/** From this length on the masking may leave something out, because of its own limits. */
const maybeLeftOut = 3_900;

/** The arguments of a call, as the card shows them. */
interface ShownArguments {
  /** A code block with the arguments or their beginning. Nothing in the arguments can close it. */
  block: string;
  /** When `block` is only the beginning: a folded panel with more, and how much is not shown at all. */
  more: CardElement[];
}

interface ArgumentsText {
  /** At most as much as a card may show. */
  json: string;
  /** Length of the arguments, in characters. */
  given: number;
  /** How many of these are missing in `json`. */
  leftOut: number;
}

function textOf({ arguments: given, secrets }: Approval): ArgumentsText {
  const masked = maskedArguments(given, secrets);
  const compact = JSON.stringify(masked);
  const whole = compact.length > maxIndented ? compact : JSON.stringify(masked, null, 2);
  const { length } = JSON.stringify(given);
  const unmasked = length < maybeLeftOut ? 0 : Math.max(0, length - compact.length);
  // Escapes only make the text longer.
  const head = headWithin(whole, { ...foldedRoom, bytes: Number.POSITIVE_INFINITY });
  const left = whole.length - head.length;
  return {
    json: `${visibleJson(head)}${left === 0 ? "" : "…"}`,
    given: length,
    leftOut: unmasked + left,
  };
}

/** The text holds no run of three backticks: see `visibleJson`. */
function jsonBlock(json: string): string {
  return `\`\`\`json\n${json}\n\`\`\``;
}

function cutTo(json: string, room: TextRoom, lines = Number.POSITIVE_INFINITY): string {
  const head = headWithin(json, room);
  const cut = head.split("\n").slice(0, lines).join("\n");
  return cut.length < json.length ? `${cut}…` : cut;
}

/** `left`: how many characters of the arguments are not shown at all. */
function panelOf(
  { json, given, leftOut }: ArgumentsText,
  language: ReplyLanguage,
): { panel: CardElement; left: number } {
  const folded = cutTo(json, foldedRoom);
  const panel = foldedPanel(cardTexts[language].approval.allArguments(given), [
    markdown(jsonBlock(folded), { text_size: "notation" }),
  ]);
  return { panel, left: leftOut + (folded === json ? 0 : json.length - (folded.length - 1)) };
}

function notShown(left: number, language: ReplyLanguage): CardElement[] {
  return left === 0 ? [] : [markdown(cardTexts[language].approval.notShown(left))];
}

/** The arguments as indented JSON, with secrets masked. The card says how much is not shown. */
function shownArguments(approval: Approval, language: ReplyLanguage): ShownArguments {
  const text = textOf(approval);
  const open = cutTo(text.json, openRoom, openLines);
  const block = jsonBlock(open);
  if (open === text.json && text.leftOut === 0) return { block, more: [] };
  const { panel, left } = panelOf(text, language);
  return { block, more: [panel, ...notShown(left, language)] };
}

/** The arguments in a folded panel, for the record. */
function argumentsPanel(approval: Approval, language: ReplyLanguage): CardElement {
  return panelOf(textOf(approval), language).panel;
}

/** Limits that keep a card below its size, however long names and notes are. */
const nameRoom: TextRoom = { characters: 64, bytes: 160 };
const reasonRoom: TextRoom = { characters: 600, bytes: 1_600 };
const noteRoom: TextRoom = { characters: 500, bytes: 1_100 };
const maxPeople = 10;
const maxNotes = 2;

/** Text of people or models with hidden characters made visible, cut when it is too long. */
function shownWords(text: string, room: TextRoom): string {
  const given = text.trim();
  // Escapes only make the text longer.
  const visible = visibleText(given.slice(0, room.characters + 1));
  const head = headWithin(visible, room);
  return head.length < visible.length || given.length > room.characters + 1 ? `${head}…` : head;
}

function shownName(name: string): string {
  return shownWords(name.slice(0, 4 * nameRoom.characters).replaceAll(/\s+/g, " "), nameRoom);
}

/** Text in which nothing is markup. */
function line(content: string, color = "default"): CardElement {
  return { tag: "div", text: { ...plainText(content), text_color: color } };
}

function isOpenId(id: string): boolean {
  return /^ou_\w{1,64}$/.test(id);
}

/** The platform draws names and pictures, and leaves out people whom it does not know ("Person list"). */
function personList(openIds: readonly string[]): CardElement[] {
  if (openIds.length === 0) return [];
  const persons = openIds.slice(0, maxPeople).map((id) => ({ id }));
  return [
    {
      tag: "person_list",
      persons,
      size: "small",
      show_name: true,
      show_avatar: true,
      drop_invalid_user_id: true,
    },
  ];
}

/** People by name; people whose name we do not know are drawn by the platform. */
function people(label: string, who: readonly Sender[], language: ReplyLanguage): CardElement[] {
  const { colon, comma } = cardTexts[language].approval;
  const shown = [...new Map(who.map((person) => [person.id, person])).values()].slice(0, maxPeople);
  const unnamed = shown
    .filter(({ id, name = "" }) => name === "" && isOpenId(id))
    .map(({ id }) => id);
  const named = shown
    .filter(({ id }) => !unnamed.includes(id))
    .map(({ id, name }) => shownName(name || id));
  return [line(`${label}${colon}${named.join(comma)}`.trim()), ...personList(unnamed)];
}

function deciders(
  { deciders: who, requester, kind }: Approval,
  language: ReplyLanguage,
): CardElement[] {
  const { colon, deciders: mayDecide, question: asked } = cardTexts[language].approval;
  const label = kind === "question" ? asked.deciders : mayDecide;
  const listed = who.people.filter(isOpenId);
  const others = { ...who, people: who.people.filter((id) => !isOpenId(id)).map(shownName) };
  const isNamed = others.people.length > 0 || who.roles.length > 0 || who.operators === true;
  const hasOthers = (who.requester && !who.fourEyes) || isNamed;
  const name = requester.name === undefined ? {} : { requester: shownName(requester.name) };
  const text = hasOthers || listed.length === 0 ? decidersText(others, { language, ...name }) : "";
  return [
    line(`${label}${colon}${shownWords(text, { characters: 300, bytes: 900 })}`.trim()),
    ...personList(listed),
  ];
}

function moment(label: string, atMs: number, colon: string): CardElement {
  return markdown(`${label}${colon}${localTime(atMs)}`, { text_size: "notation" });
}

/** The requester alone sees the card and decides: they know who they are. */
function isBetweenTwo(approval: Approval): boolean {
  const { words, bilingual = false } = approval;
  return words?.summary !== undefined && asksRequesterAlone(approval) && !bilingual;
}

/** What people should know before they decide. */
export function openFacts(approval: Approval, language: ReplyLanguage): CardElement[] {
  const texts = cardTexts[language].approval;
  const reason = shownWords(approval.reasons?.[language] ?? approval.reason, reasonRoom);
  const isHigh = isOfHighRisk(approval);
  const risk = approval.kind === "call" && !isHigh ? `${texts.risk[approval.risk]} · ` : "";
  return [
    ...peopleInCall(approval, language),
    ...(reason === "" ? [] : [line(`${texts.reason}${texts.colon}${reason}`)]),
    ...(isHigh ? [line(texts.risk.high, "red")] : []),
    ...(isBetweenTwo(approval) ? [] : people(texts.requester, [approval.requester], language)),
    ...(isBetweenTwo(approval) ? [] : deciders(approval, language)),
    moment(`${risk}${texts.expires}`, approval.expiresAtMs, texts.colon),
  ];
}

/** People whom the arguments name by an id that says nothing to a reader, such as those who are invited. */
function peopleInCall(
  { kind, arguments: given, secrets }: Approval,
  language: ReplyLanguage,
): CardElement[] {
  if (kind !== "call") return [];
  const ids = openIdsIn(maskedArguments(given, secrets));
  return ids.length === 0
    ? []
    : people(
        cardTexts[language].approval.named,
        ids.map((id) => ({ id })),
        language,
      );
}

function openIdsIn(value: unknown): string[] {
  if (typeof value === "string") return isOpenId(value) ? [value] : [];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(openIdsIn) : [];
}

function peopleByWord(
  decisions: readonly ApprovalDecision[],
  language: ReplyLanguage,
): CardElement[] {
  const words = [...new Set(decisions.map(({ decision }) => decision))];
  return words.flatMap((word) => {
    const who = decisions.filter(({ decision }) => decision === word).map(({ by }) => by);
    return people(cardTexts[language].approval.decidedBy[word], who, language);
  });
}

/** The person whose calls the rule covers, when it covers only one person's. */
function ruleScope({ remember, requester }: Approval, language: ReplyLanguage): CardElement[] {
  const { onlyOf } = cardTexts[language].approval;
  return remember?.person === undefined ? [] : people(onlyOf, [requester], language);
}

/** How many people have to decide, when it is more than one, and who has decided so far. */
function progress(
  { kind, deciders: { count } }: Approval,
  decisions: readonly ApprovalDecision[],
  language: ReplyLanguage,
): CardElement[] {
  if (count === 1 && decisions.length === 0) return [];
  const texts = cardTexts[language].approval;
  const have = decisions.filter(({ decision }) => decision === "approve").length;
  const needed = kind === "outcome" ? texts.agree(count) : texts.progress(have, count);
  return [line(needed), ...peopleByWord(decisions, language)];
}

/** Who decided, when and why. */
function decidedFacts(
  decisions: readonly ApprovalDecision[],
  language: ReplyLanguage,
): CardElement[] {
  const texts = cardTexts[language].approval;
  const last = decisions.at(-1);
  const notes = decisions.flatMap(({ note = "" }) =>
    note.trim() === "" ? [] : [shownWords(note, noteRoom)],
  );
  return [
    ...peopleByWord(decisions, language),
    ...notes.slice(-maxNotes).map((note) => line(`${texts.reason}${texts.colon}${note}`)),
    ...(last === undefined ? [] : [moment(texts.decidedAt, last.atMs, texts.colon)]),
  ];
}

/** Longest note or reason that a form takes. */
const maxNote = 500;
/** A longer rule is not offered: a person must not agree to a rule that is not shown whole. */
const maxRule = { characters: 300, bytes: 1_500 };
/** The platform takes 100 characters on a button. */
const maxButtonText = 90;

function decisionValue(
  { id }: Approval,
  decision: "approve" | "reject",
  more: CardElement = {},
): CardElement {
  return { __approval__: id, decision, ...more };
}

function outcomeValue({ id }: Approval, action: "retry" | "done" | "abort"): CardElement {
  return { larkline: "outcome", approval: id, action };
}

function confirmed(element: CardElement, title: string, text: string): CardElement {
  return { ...element, confirm: { title: plainText(title), text: plainText(text) } };
}

function approveButton(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = cardTexts[language].approval;
  const value = decisionValue(approval, "approve");
  const approve = button(texts.approve, { type: "primary", elementId: "approve", value });
  return isOfHighRisk(approval)
    ? confirmed(approve, texts.risk.high, askedTwice(approval, language))
    : approve;
}

function isOfHighRisk({ kind, risk }: Approval): boolean {
  return kind === "call" && risk === "high";
}

/** Room of the question that the platform asks behind a button. */
const twiceRoom: TextRoom = { characters: 200, bytes: 600 };

/** What a person agrees to, in a sentence. */
function askedTwice(approval: Approval, language: ReplyLanguage): string {
  const { words } = approval;
  if (words?.summary !== undefined) return shownWords(textIn(words.summary, language), twiceRoom);
  return cardTexts[language].approval.kinds.call.title(toolOf(approval, language));
}

function rejectButton(approval: Approval, language: ReplyLanguage): CardElement {
  const value = decisionValue(approval, "reject");
  return button(cardTexts[language].approval.reject, {
    type: "danger",
    elementId: "reject",
    value,
  });
}

/** Opens the form with the reason: a form must be at the root of a card, so none can be folded ("Form container"). */
function whyButton({ id }: Approval, language: ReplyLanguage): CardElement {
  const value = { __approval__: id, ask: "reason" };
  return button(cardTexts[language].approval.rejectWhy, { elementId: "why", value });
}

/** Approves and adds a rule, which the question behind the button shows whole; only where policy permits it. */
function alwaysButton(approval: Approval, language: ReplyLanguage): CardElement[] {
  const { remember, requester } = approval;
  if (remember === undefined) return [];
  const texts = cardTexts[language].approval;
  const rule = visibleText(ruleText(remember));
  if (!fits(rule, maxRule)) return [];
  const who =
    remember.person === undefined ? undefined : shownName(requester.name || texts.somebody);
  const value = decisionValue(approval, "approve", { remember: true });
  const always = button(texts.always, { elementId: "always", value });
  return [confirmed(always, texts.alwaysTitle, texts.alwaysText(rule, who))];
}

interface NoteForm {
  name: string;
  field: string;
  hint: string;
  submit: CardElement;
  maxLength?: number;
}

/** A form must be at the root of a card, and every element in it needs a name of its own ("Form container"). */
function noteForm({ name, field, hint, submit, maxLength = maxNote }: NoteForm): CardElement {
  const input = {
    tag: "input",
    name: field,
    placeholder: plainText(hint),
    max_length: maxLength,
    width: "fill",
  };
  return {
    tag: "form",
    name,
    elements: [input, { ...submit, name: `${name}_submit`, form_action_type: "submit" }],
  };
}

/** Rejects with the text of the field `reason`. */
function rejectForm(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = cardTexts[language].approval;
  const submit = button(texts.rejectWithReason, {
    type: "danger",
    value: decisionValue(approval, "reject"),
  });
  return noteForm({ name: "reject_form", field: "reason", hint: texts.reasonHint, submit });
}

function retryButton(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = cardTexts[language].approval;
  const retry = button(texts.retry, { elementId: "retry", value: outcomeValue(approval, "retry") });
  return confirmed(retry, texts.retryTitle, texts.retryText);
}

function abortButton(approval: Approval, language: ReplyLanguage): CardElement {
  const value = outcomeValue(approval, "abort");
  return button(cardTexts[language].approval.abort, { type: "danger", elementId: "abort", value });
}

/** Marks as done, with the text of the field `note`. */
function doneForm(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = cardTexts[language].approval;
  const submit = button(texts.markDone, { type: "primary", value: outcomeValue(approval, "done") });
  return noteForm({ name: "done_form", field: "note", hint: texts.noteHint, submit });
}

// The card of a question: its text, and a button for each choice beside a field for any other answer.

const questionRoom: TextRoom = { characters: 1_000, bytes: 4_000 };
/** The beginning of an answer, for the record; the agent has it whole. */
const answerRoom: TextRoom = { characters: 1_000, bytes: 3_000 };
/** The platform takes as many characters in a field ("Input"). */
const maxField = 1_000;

interface ShownQuestion {
  state: ApprovalState;
  language: ReplyLanguage;
  bare: boolean;
}

function questionCard(
  { approval, decisions }: ShownApproval,
  { state, language, bare }: ShownQuestion,
): CardElement {
  const { question: texts, ...common } = cardTexts[language].approval;
  const { text = "", choices = [], format, form } = approval.question ?? {};
  const asked = line(shownWords(form?.message ?? text, questionRoom));
  const path = shownWords(approval.reason, reasonRoom);
  if (state === "pending") {
    return titled(texts.title, "blue", [
      ...(form === undefined ? [] : [line(texts.server(shownName(form.server)), "grey")]),
      asked,
      ...(path === "" ? [] : [line(`${texts.asker}${common.colon}${path}`)]),
      ...people(common.requester, [approval.requester], language),
      ...deciders(approval, language),
      moment(common.expires, approval.expiresAtMs, common.colon),
      ...(form === undefined && format === undefined
        ? answerElements(approval, choices, language)
        : formElements(approval, language)),
    ]);
  }
  const title = texts.endings[state] ?? texts.endings.cancelled;
  const last = decisions.at(-1);
  const template = settledTemplates[state] ?? "grey";
  if (bare) return titled(title, template, [line(title)]);
  if (last === undefined) return titled(title, template, [asked]);
  return titled(title, template, [
    asked,
    line(
      `${texts.answer}${common.colon}${shownWords(answerWords(last.note ?? "", form, language), answerRoom)}`,
    ),
    ...peopleByWord(decisions, language),
    moment(common.decidedAt, last.atMs, common.colon),
  ]);
}

function answerValue({ id }: Approval, more: CardElement = {}): CardElement {
  return { larkline: "answer", approval: id, ...more };
}

function answerElements(
  approval: Approval,
  choices: readonly string[],
  language: ReplyLanguage,
): CardElement[] {
  const row = choices.map((choice, at) => choiceButton(approval, choice, at));
  return [...(row.length === 0 ? [] : [buttonRow(row)]), answerForm(approval, language)];
}

const declinedNote = '{"action":"decline"}';

/** The form of a server with its fields in their order, or the picker of a date; and a way to decline. */
function formElements(approval: Approval, language: ReplyLanguage): CardElement[] {
  const { send, decline } = cardTexts[language].approval.question;
  const { form, format: kind = "date" } = approval.question ?? {};
  const names = form?.fields.map(({ name }) => name) ?? ["answer"];
  const submit = {
    ...button(send, { type: "primary", value: answerValue(approval, { fields: names }) }),
    name: "form_submit",
    form_action_type: "submit",
  };
  const elements = form?.fields.flatMap((field, at) =>
    fieldElements(field, `field_${at}`, language),
  ) ?? [{ ...controlOf({ kind }, language), name: "field_0" }];
  const declining = answerValue(approval, { choice: declinedNote });
  return [
    { tag: "form", name: "server_form", elements: [...elements, submit] },
    buttonRow([button(decline, { elementId: "decline", value: declining })]),
  ];
}

const labelRoom: TextRoom = { characters: 100, bytes: 300 };
const hintRoom: TextRoom = { characters: 200, bytes: 600 };
/** Options of all fields together are in one card of 30 KB. */
const optionRoom: TextRoom = { characters: 40, bytes: 120 };

function fieldElements(field: FormField, name: string, language: ReplyLanguage): CardElement[] {
  const { label, hint, required } = field;
  const { colon } = cardTexts[language].approval;
  const about = hint === undefined ? "" : `${colon}${shownWords(hint, hintRoom)}`;
  return [
    line(`${shownWords(label, labelRoom)}${required ? " *" : ""}${about}`),
    { ...controlOf(field, language), name },
  ];
}

function select(listed: readonly { value: string; label: string }[]): CardElement {
  const options = listed.map(({ value, label }) => ({
    text: plainText(shownWords(label, optionRoom)),
    value,
  }));
  return { tag: "select_static", options, width: "fill" };
}

function controlOf(
  { kind, options = [] }: Pick<FormField, "kind" | "options">,
  language: ReplyLanguage,
): CardElement {
  const { yes, no } = cardTexts[language].approval.question;
  if (kind === "choice") return select(options);
  if (kind === "boolean") {
    return select([
      { value: "true", label: yes },
      { value: "false", label: no },
    ]);
  }
  if (kind === "date") return { tag: "date_picker", width: "fill" };
  if (kind === "date-time") return { tag: "picker_datetime", width: "fill" };
  return { tag: "input", max_length: maxField, width: "fill" };
}

/** The answer to a form, a field a part; other answers as they are. */
function answerWords(note: string, form: AskedForm | undefined, language: ReplyLanguage): string {
  const { declined } = cardTexts[language].approval.question;
  if (form === undefined) return note === declinedNote ? declined : note;
  try {
    const { action, content = {} } = JSON.parse(note) as {
      action?: string;
      content?: Record<string, unknown>;
    }; // ingress stores it so
    if (action !== "accept") return declined;
    return form.fields
      .flatMap(({ name, label }) =>
        content[name] === undefined ? [] : [`${label}: ${String(content[name])}`],
      )
      .join("; ");
  } catch {
    return note;
  }
}

function choiceButton(approval: Approval, choice: string, at: number): CardElement {
  const text = shownWords(choice, { characters: maxButtonText, bytes: 400 });
  return button(text, { elementId: `choice_${at}`, value: answerValue(approval, { choice }) });
}

function answerForm(approval: Approval, language: ReplyLanguage): CardElement {
  const { hint, otherHint, send } = cardTexts[language].approval.question;
  const hasChoices = (approval.question?.choices ?? []).length > 0;
  const submit = button(send, {
    type: hasChoices ? "default" : "primary",
    value: answerValue(approval),
  });
  const form = { name: "answer_form", field: "answer", hint: hasChoices ? otherHint : hint };
  return noteForm({ ...form, submit, maxLength: maxField });
}

// The card of a consent: what the app may do as the person, and the link to the page of the platform that asks them.

const taskRoom: TextRoom = { characters: 300, bytes: 1_000 };
/** As many as a link may ask for. */
const maxScopes = 49;

function consentCard(
  { approval, consent }: ShownApproval,
  { state, language, bare }: ShownQuestion,
): CardElement {
  const { consent: texts, colon } = cardTexts[language].approval;
  const tool = toolOf(approval, language);
  const scopes = (consent?.scopes ?? approval.consent?.scopes ?? []).slice(0, maxScopes);
  const list = markdown(scopes.map((scope) => `- ${scopeWords(scope, language)}`).join("\n"));
  if (state !== "pending") {
    const title = texts.endings[state] ?? texts.endings.cancelled;
    return titled(
      title,
      settledTemplates[state] ?? "grey",
      bare ? [line(title)] : [line(texts.asks(tool)), list],
    );
  }
  const task = shownWords(approval.reason, taskRoom);
  const shown = [
    line(texts.asks(tool)),
    list,
    ...(task === "" ? [] : [line(`${texts.task}${colon}${task}`, "grey")]),
  ];
  const notNow = button(texts.notNow, {
    elementId: "not_now",
    value: decisionValue(approval, "reject"),
  });
  const { state: step = "trouble", link = "", startedAtMs = 0, endsAtMs = 0 } = consent ?? {};
  if (step === "moved") return titled(texts.title, "grey", [...shown, line(texts.states.moved)]);
  if (step !== "waiting") {
    const why = texts.states[step === "ended" ? "trouble" : step];
    const again = button(texts.again, {
      type: "primary",
      elementId: "again",
      value: consentValue(approval),
    });
    return titled(texts.title, "grey", [...shown, line(why, "red"), buttonRow([again, notNow])]);
  }
  const minutes = Math.max(1, Math.round((endsAtMs - startedAtMs) / 60_000));
  const open = {
    ...button(texts.open, { type: "primary", elementId: "grant", value: {} }),
    behaviors: openedAt(link),
  };
  return titled(texts.title, "blue", [
    ...shown,
    buttonRow([open, notNow]),
    moment(texts.life(minutes), endsAtMs, colon),
    line(texts.afterwards, "grey"),
  ]);
}

/** In the browser: pages of the platform that ask people have failed inside its client. */
function openedAt(link: string): CardElement[] {
  return [{ type: "open_url", default_url: link }];
}

function consentValue({ id }: Approval): CardElement {
  return { larkline: "consent", approval: id };
}
