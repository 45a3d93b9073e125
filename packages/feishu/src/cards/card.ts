import {
  moneyText,
  textIn,
  type LocalText,
  type ReplyLanguage,
  replyLanguages,
} from "@larkline/protocol";
import { rejectedText } from "@larkline/protocol/error";
import type {
  ListPanel,
  RatedRun,
  ReplyView,
  ProgressPanel,
  ShownTool,
} from "@larkline/protocol/reply-view";
import { withoutImageMarks } from "@larkline/protocol/stored-image";
import {
  alignedRow,
  showAnswer,
  type ImageKeys,
  type ShownAnswer,
  startOfAnswer,
  type SliceEnd,
  LineReader,
  maxTables,
  maxTablesPerCard,
  type Context,
  type Line,
  fenced,
  scriptBytes,
  inlineText,
  printable,
} from "./answer.ts";
import { chartElement, chartPieces, maxChartsPerCard } from "./chart.ts";
import { saidOutcome } from "./outcome-texts.ts";
import { cardTexts } from "./texts.ts";

/** One card of a reply. Page 0 has thinking and tools; the last one has footer and stop button. */
export interface RenderedCard {
  /** The whole card, to create it or to update it fully. */
  card: CardElement;
  /**
   * Content of the element `answer`: what the content API gets. Never empty: "…" as long as nothing
   * can be shown while the card streams (the first text replaces it), how it ended afterwards.
   */
  answer: string;
  /** The other top-level elements by id, in the order of the body. */
  parts: Record<string, CardElement>;
  /** Counted as the platform counts them. */
  bytes: number;
  elements: number;
  tables: number;
  hasCharts: boolean;
}

/** Which of the reply's cards; `cuts` as {@link extendCuts} returned them. */
export interface CardPage {
  cuts: readonly number[];
  number: number;
  /** This is the last card although the answer is longer: the rest is sent as a file. */
  restInFile?: boolean;
}

/**
 * How much of the form of a reply is kept: `formatted`; `chartless`: charts as they were written, because the
 * platform refuses one; `imageless`: that, and names in place of images, because the platform does not know their keys; `plain`: the answer without its markdown,
 * because the platform refuses that; `bare`: the plain answer, and nothing around it.
 */
export type CardStyle = "formatted" | "chartless" | "imageless" | "plain" | "bare";

interface RenderOptions {
  /** The card types: more of its answer follows soon. */
  streaming: boolean;
  /** Default `formatted`. */
  style?: CardStyle;
  /** Image key by name; null: there is none. A name that is missing is still on its way while streaming. */
  images?: ImageKeys;
  /** Below the answer: what its person is asked, with buttons. Such a card does not stream. */
  asks?: readonly CardElement[];
}

/** What an answer shows before it has any text. */
const placeholder = "…";

/**
 * The client types `print_step` characters each `print_frequency_ms`. Models write 50 to 300
 * characters a second, and frames come a few times a second at best: at 5 characters each 30 ms
 * (about 165 a second) a frame is typed when the next one comes, and `fast` shows at once what is
 * not, so that the card never falls behind ("Streaming updates": keep them constant during a stream).
 */
const streamingConfig = {
  print_frequency_ms: { default: 30 },
  print_step: { default: 5 },
  print_strategy: "fast",
};

/** Bytes for thinking and tools, of which panels of progress take their part, while the answer leaves them room, and when it does not. */
const widePanels = { upToAnswerBytes: 11_000, thinking: 5_000, tools: 6_500, progress: 3_500 };
const narrowPanels = { thinking: 1_000, tools: 1_900, progress: 1_000 };

/** A team takes half of that room for what its members have said before the answer. */
const teamShare = 0.5;

const belowAnswer: ReadonlySet<string> = new Set(["rest", "stop", "again", "footer"]);

function isBelowAnswer(id: string): boolean {
  return belowAnswer.has(id) || id.startsWith("list_");
}

/** The card of one page of the reply. */
export function renderCard(view: ReplyView, page: CardPage, options: RenderOptions): RenderedCard {
  const { style = "formatted", images, streaming, asks = [] } = options;
  const withImages = images !== undefined && (style === "formatted" || style === "chartless");
  const rendered = formattedCard(view, page, {
    streaming,
    asks,
    charts: style === "formatted",
    ...(withImages ? { images } : {}),
  });
  if (style !== "plain" && style !== "bare") return rendered;
  return withPlainAnswer(rendered, withoutImageMarks(sliceOf(view.answer, page)), style);
}

function formattedCard(view: ReplyView, page: CardPage, options: AnswerForm): RenderedCard {
  const shown = shownAnswer(view, page, options);
  const answer = shown.text === "" ? whenEmpty(view, options) : shown.text;
  const drawn = options.charts === true ? withCharts(view, page, options) : undefined;
  const parts = partsOf(view, page, jsonBytes(answer));
  const { asks = [] } = options;
  const all = Object.entries(parts);
  const above = all.flatMap(([id, part]) => (isBelowAnswer(id) ? [] : [part]));
  const below = all.flatMap(([id, part]) => (isBelowAnswer(id) ? [part] : []));
  const card = {
    schema: "2.0",
    config: {
      update_multi: true,
      streaming_mode: options.streaming,
      streaming_config: streamingConfig,
      ...(options.streaming ? {} : { summary: summaryPart(view) }),
      ...(shown.isWide === true ? { width_mode: "fill" } : {}),
    },
    body: {
      direction: "vertical",
      elements: [
        ...above,
        ...(drawn ??
          (shown.text === "" && asks.length > 0
            ? []
            : [markdown(answer, { element_id: "answer" })])),
        ...asks,
        ...below,
      ],
    },
  };
  const bytes = jsonBytes(card);
  if (view.bilingual === true && bytes > maxCardBytes) {
    return formattedCard({ ...view, bilingual: false }, page, options);
  }
  if (drawn !== undefined && bytes > maxCardBytes) {
    return formattedCard(view, page, { ...options, charts: false });
  }
  const measures = { bytes, elements: countElements(card), tables: shown.tables };
  return { card, answer, parts, ...measures, hasCharts: drawn !== undefined };
}

/** The same card with its answer as plain text, which the platform takes whatever the text holds. */
function withPlainAnswer(
  rendered: RenderedCard,
  text: string,
  style: "plain" | "bare",
): RenderedCard {
  const body = rendered.card["body"] as { elements: CardElement[] }; // as formattedCard makes it
  const content = text.trim() === "" ? rendered.answer : text;
  const plain = { tag: "div", text: plainText(content) };
  const elements = body.elements.map((element) =>
    element["element_id"] === "answer" ? plain : element,
  );
  const card = {
    ...rendered.card,
    body: { ...body, elements: style === "bare" ? [plain] : elements },
  };
  return { ...rendered, card, answer: content };
}

/** The part of the answer that a page shows. */
export function sliceOf(answer: string, { cuts, number }: CardPage): string {
  return answer.slice(cuts[number - 1] ?? 0, cuts[number]);
}

type AnswerForm = Omit<RenderOptions, "style"> & { charts?: boolean };

function sliceEnd(answer: string, to: number, isLast: boolean): SliceEnd {
  if (isLast) return "line";
  return answer[to - 1] === "\n" ? "line" : "within-line";
}

function shownAnswer(
  view: ReplyView,
  { cuts, number }: CardPage,
  { streaming, images }: AnswerForm,
): ShownAnswer {
  const isLast = number >= cuts.length;
  const to = isLast ? view.answer.length : (cuts[number] ?? view.answer.length);
  const slice = view.answer.slice(number === 0 ? 0 : (cuts[number - 1] ?? 0), to);
  const end = streaming && isLast ? "growing" : sliceEnd(view.answer, to, isLast);
  return showAnswer(slice, contextAt(view.answer, cuts, number), { end, streaming, images });
}

/**
 * The answer of a card that is finished, with the charts that it has as fences, then those of tools; undefined where there
 * are none. While the card types, a fence is code: the chart comes with the last frame.
 */
function withCharts(
  view: ReplyView,
  page: CardPage,
  { streaming, images }: AnswerForm,
): CardElement[] | undefined {
  if (streaming || view.state === "running") return undefined;
  const { cuts, number } = page;
  const isLast = number >= cuts.length;
  const context = contextAt(view.answer, cuts, number);
  const slice = sliceOf(view.answer, page);
  const pieces = chartPieces(slice, context) ?? [{ slice, context }];
  const ofTools = isLast ? view.tools.flatMap(({ chart }) => chart ?? []) : [];
  const inText = pieces.filter((piece) => "chart" in piece).length;
  const beside = ofTools.slice(0, maxChartsPerCard - inText).map((chart) => ({ chart }));
  if (inText + beside.length === 0) return undefined;
  const end = sliceEnd(view.answer, cuts[number] ?? view.answer.length, isLast);
  let texts = 0;
  return [...pieces, ...beside].flatMap((piece, at) => {
    if ("chart" in piece) return [chartElement(piece.chart, `chart_${at + 1}`)];
    const { text } = showAnswer(piece.slice, piece.context, { end, streaming, images });
    if (text === "") return [];
    texts += 1;
    return [markdown(text, { element_id: texts === 1 ? "answer" : `answer_${texts}` })];
  });
}

function partsOf(
  view: ReplyView,
  page: CardPage,
  answerBytes: number,
): Record<string, CardElement> {
  const whole = answerBytes <= widePanels.upToAnswerBytes ? widePanels : narrowPanels;
  const teamBytes =
    view.contributions === undefined ? 0 : (whole.thinking + whole.tools) * teamShare;
  const share = teamBytes === 0 ? 1 : teamShare;
  const room = { thinking: whole.thinking * share, tools: whole.tools * share };
  const progress = progressParts(view, whole.progress * share);
  const isLast = page.number >= page.cuts.length || page.restInFile === true;
  const parts: Record<string, CardElement | undefined> = {
    thinking: page.number === 0 ? thinkingPanel(view, room.thinking) : undefined,
    ...(page.number === 0
      ? callParts(view, room.tools - (progress === undefined ? 0 : whole.progress * share))
      : {}),
    ...(page.number === 0 ? progress : {}),
    ...(page.number === 0 ? contributionParts(view, teamBytes) : {}),
    rest:
      page.restInFile === true
        ? inLanguages(view, (language) => restLine({ ...view, language }))
        : undefined,
    ...(isLast ? listParts(view) : {}),
    stop: isLast ? inLanguages(view, (language) => stopButton({ ...view, language })) : undefined,
    again: isLast ? inLanguages(view, (language) => againButton({ ...view, language })) : undefined,
    footer: isLast ? inLanguages(view, (language) => lastLine({ ...view, language })) : undefined,
  };
  const present: Record<string, CardElement> = {};
  for (const [id, part] of Object.entries(parts)) if (part !== undefined) present[id] = part;
  return present;
}

function whenEmpty(view: ReplyView, { streaming }: AnswerForm): string {
  if (streaming || view.state === "running") return placeholder;
  const texts = cardTexts[view.language];
  return view.state === "answered" ? texts.noAnswer : texts.states[view.state];
}

const maxThinkingCharacters = 2_000;
const maxOutputCharacters = 500;
const maxTools = 20;

const stateIcons: Record<ShownTool["state"], string> = {
  running: "⏳",
  waiting: "✋",
  done: "✅",
  failed: "❌",
  stopped: "⏹️",
};

const awayIcon = "💤";
const rejectedIcon = "🚫";

/** Shorter waits for a runner are not shown. */
const shownQueueMs = 1_000;

/** Seconds as a person reads them: one decimal below ten. */
function shownSeconds(seconds: number): string {
  return seconds < 10 ? (Math.round(seconds * 10) / 10).toString() : Math.round(seconds).toString();
}

/** A text with numbers in place of each `{}`. */
function filled(text: string, ...numbers: string[]): string {
  return numbers.reduce((all, number) => all.replace("{}", () => number), text);
}

/** Small text in which nothing is markup. */
function smallText(content: string, color = "default"): CardElement {
  return { tag: "div", text: { ...plainText(content), text_size: "notation", text_color: color } };
}

/** The thinking in a folded panel; of a long one the end. */
function thinkingPanel(view: ReplyView, bytes: number): CardElement | undefined {
  const thinking = printable(view.thinking.slice(-2 * maxThinkingCharacters)).trim();
  if (thinking === "") return undefined;
  const running = view.state === "running" && view.answer === "";
  const tail = tailWithin(thinking, {
    characters: maxThinkingCharacters,
    bytes: Math.floor(bytes * 0.75),
  });
  const { text } = showAnswer(tail, startOfAnswer, {
    end: "line",
    streaming: false,
    images: undefined,
    inPanel: true,
  });
  const room = { characters: maxThinkingCharacters * 2, bytes };
  const shown =
    jsonBytes(text) <= bytes ? text : fenced(headWithin(tail, { ...room, bytes: bytes / 2 }));
  const content = `${tail.length < view.thinking.trim().length ? "…\n\n" : ""}${shown === "" ? "…" : shown}`;
  const element = markdown(content, { element_id: "thinking_text", text_size: "notation" });
  return inLanguages(view, (language) => {
    const { thinking: now, thought, thoughtFor } = cardTexts[language];
    const seconds = Math.round((view.thinkingMs ?? 0) / 1_000);
    const done = seconds === 0 ? thought : filled(thoughtFor, String(seconds));
    return foldedPanel(running ? now : done, [element], "thinking");
  });
}

/**
 * What a reader should know without unfolding the panel: what runs now, how long and how far it is; which calls have
 * failed; that the turn waits for a person, or for a runner that is away. Once nothing runs, which tools were called.
 */
function panelTitle(view: ReplyView, language: ReplyLanguage): string {
  const texts = cardTexts[language];
  const { tools } = view;
  const isOpen = view.state === "running";
  // Helpers that work have lines of their own.
  const running = tools.filter(
    (tool) => isOpen && tool.state === "running" && !isAway(tool) && tool.helper === undefined,
  );
  return [
    ...(running.length === 0
      ? calledMarks(view, language)
      : [...runningMarks(running, language), ...failedMarks(tools.filter(hasFailed), language)]),
    ...(tools.some(isWaiting) ? [waitingMark(tools, language)] : []),
    ...(tools.some(isAway) ? [`${awayIcon} ${texts.away}`] : []),
  ].join(" · ");
}

/** The model reads of a rejection in the same words always. */
function isRejected({ state, output = "" }: ShownTool): boolean {
  return state === "failed" && output.startsWith(rejectedText);
}

function hasFailed(tool: ShownTool): boolean {
  return tool.state === "failed" && !isRejected(tool);
}

function iconOf(tool: ShownTool): string {
  if (isAway(tool)) return awayIcon;
  return isRejected(tool) ? rejectedIcon : stateIcons[tool.state];
}

/** How a call has ended, where that is not well. */
function endIcon(tool: ShownTool): string {
  return tool.state === "failed" || tool.state === "stopped" ? iconOf(tool) : "";
}

/** Tools that the title of the panel names. */
const maxNamed = 3;
const maxNameCharacters = 40;

/** The tools that were called, each once for what became of it, those first that did not end well. */
function calledMarks({ tools, earlierTools }: ReplyView, language: ReplyLanguage): string[] {
  const texts = cardTexts[language];
  const groups = Map.groupBy(tools, (tool) => `${endIcon(tool)}|${titleOf(tool, language)}`);
  const all = [...groups.values()];
  const endedIll = all.filter(([first]) => first !== undefined && endIcon(first) !== "");
  const chosen = new Set([...endedIll, ...all].slice(0, maxNamed));
  const named = all.filter((calls) => chosen.has(calls));
  const marks = named.flatMap((calls) => {
    const [first] = calls;
    if (first === undefined) return [];
    const elapsedMs = calls.reduce((sum, call) => sum + (call.elapsedMs ?? 0), 0);
    const isTimed = first.state === "done" && elapsedMs >= 1_000;
    return [
      [
        oneLine(titleOf(first, language), maxNameCharacters),
        ...(calls.length === 1 ? [] : [`×${calls.length}`]),
        ...(endIcon(first) === "" ? [] : [endIcon(first)]),
        ...(isTimed ? [filled(texts.seconds, String(Math.round(elapsedMs / 1_000)))] : []),
      ].join(" "),
    ];
  });
  const others = tools.length + earlierTools - named.reduce((sum, calls) => sum + calls.length, 0);
  return [...marks, ...(others === 0 ? [] : [texts.more(others)])];
}

/** The title of the tool, else its name; of a helper who works. */
function titleOf({ name, words, helper }: ShownTool, language: ReplyLanguage): string {
  return helper === undefined
    ? textIn(words?.title ?? name, language)
    : shownName(helper.agent, language);
}

const maxDetailCharacters = 60;

/** The first of the calls that run, and how many others do. */
function runningMarks([first, ...others]: readonly ShownTool[], language: ReplyLanguage): string[] {
  if (first === undefined) return [];
  const texts = cardTexts[language];
  const { elapsedMs = 0, progress } = first;
  const detail = oneLine(progress?.detail ?? "", maxDetailCharacters);
  return [
    `${stateIcons.running} ${nameOf(first, language)}`,
    ...(elapsedMs < 1_000 ? [] : [filled(texts.seconds, String(Math.floor(elapsedMs / 1_000)))]),
    ...(progress === undefined || progress.fraction <= 0
      ? []
      : [`${Math.floor(Math.min(1, progress.fraction) * 100)}%`]),
    ...(detail === "" ? [] : [detail]),
    ...(others.length === 0 ? [] : [texts.more(others.length)]),
  ];
}

function failedMarks(failed: readonly ShownTool[], language: ReplyLanguage): string[] {
  const [only] = failed;
  if (only === undefined) return [];
  const { failed: several } = cardTexts[language];
  return [
    `${stateIcons.failed} ${failed.length === 1 ? nameOf(only, language) : several(failed.length)}`,
  ];
}

/** Text of tools and models in one line, cut where it is too long. */
function oneLine(text: string, characters: number): string {
  const line = printable(text.slice(0, 4 * characters))
    .replaceAll(/\s+/g, " ")
    .trim();
  const head = headWithin(line, { characters, bytes: 3 * characters });
  return head.length < line.length ? `${head}…` : head;
}

/** The calls, and while helpers work a line for each of these; the lines take their room from the calls. */
function callParts(
  view: ReplyView,
  bytes: number,
): Record<"tools" | "helpers", CardElement | undefined> {
  const helpers = inLanguages(view, (language) => helperLines({ ...view, language }));
  return {
    tools: toolsPanel(view, bytes - (helpers === undefined ? 0 : jsonBytes(helpers))),
    helpers,
  };
}

const maxHelperLines = 8;

/** While helpers work: a line for each of the turn, with its task, its state and how long it has worked. */
function helperLines({ state, tools, language }: ReplyView): CardElement | undefined {
  const helpers = tools.filter(({ helper }) => helper !== undefined);
  const isOpen =
    state === "running" &&
    helpers.some((tool) => tool.state === "running" || tool.state === "waiting");
  if (!isOpen) return undefined;
  const texts = cardTexts[language];
  const lines = helpers.slice(-maxHelperLines).map((tool) => {
    const { elapsedMs = 0, progress } = tool;
    const detail = oneLine(progress?.detail ?? "", 30);
    const seconds =
      elapsedMs < 1_000 ? [] : [filled(texts.seconds, String(Math.floor(elapsedMs / 1_000)))];
    const waits = isWaiting(tool) ? [waitText(tool, language)] : [];
    return [`${iconOf(tool)} ${nameOf(tool, language)}`, ...waits, ...seconds, detail]
      .filter((part) => part !== "")
      .join(" · ");
  });
  const more = helpers.length - lines.length;
  return {
    ...smallText([...(more === 0 ? [] : [texts.earlier(more)]), ...lines].join("\n")),
    element_id: "helpers",
  };
}

/** What all calls wait for that wait for people, as far as it is the same. */
function waitingMark(tools: readonly ShownTool[], language: ReplyLanguage): string {
  const { waiting } = cardTexts[language];
  const texts = new Set(
    tools
      .filter(isWaiting)
      .map((tool) => (tool.permissionOf === undefined ? waiting : waitText(tool, language))),
  );
  const [text = waiting] = texts;
  return `${stateIcons.waiting} ${texts.size === 1 ? text : waiting}`;
}

/** What people are asked before a call can continue. */
function waitText({ helper, permissionOf }: ShownTool, language: ReplyLanguage): string {
  const { waiting, waitsForApproval, waitsForAnswer, waitsForPermission } = cardTexts[language];
  if (permissionOf !== undefined) return filled(waitsForPermission, oneLine(permissionOf, 40));
  if (helper?.wait === undefined) return waiting;
  const { about, tool } = helper.wait;
  return about === "question" ? waitsForAnswer : filled(waitsForApproval, oneLine(tool, 40));
}

/** What a call does, else the title of its tool, else its name; of a helper who works, and on what. */
function nameOf({ name, words, helper }: ShownTool, language: ReplyLanguage): string {
  if (helper !== undefined) {
    return `${shownName(helper.agent, language)}: ${oneLine(helper.task, 40)}`;
  }
  return oneLine(textIn(words?.summary ?? words?.title ?? name, language), 64);
}

function isAway({ state, isAway: away }: ShownTool): boolean {
  return state === "running" && away === true;
}

function toolTitle(tool: ShownTool, language: ReplyLanguage): string {
  const texts = cardTexts[language];
  const { state, elapsedMs, queuedMs = 0 } = tool;
  // The seconds of a call that runs are in the title of the panel: what is folded changes with its state only.
  const isTimed = elapsedMs !== undefined && state !== "running";
  return [
    `${iconOf(tool)} ${nameOf(tool, language)}`,
    ...(state === "waiting" ? [waitText(tool, language)] : []),
    ...(isRejected(tool) ? [texts.rejected] : []),
    ...(isAway(tool) ? [texts.away] : []),
    ...(isTimed ? [filled(texts.seconds, shownSeconds(elapsedMs / 1000))] : []),
    ...(queuedMs > shownQueueMs ? [filled(texts.queued, shownSeconds(queuedMs / 1000))] : []),
  ].join(" · ");
}

function toolElement(
  tool: ShownTool,
  { language, bytes }: { language: ReplyLanguage; bytes: number },
): CardElement {
  const title = toolTitle(tool, language);
  const said = saidOutcome(tool, language).slice(0, 2 * maxOutputCharacters);
  const output = printable(said).trimEnd();
  const head = headWithin(output, { characters: maxOutputCharacters, bytes });
  if (head.trim() === "") return smallText(title);
  const shown = markdown(fenced(head.length < output.length ? `${head}…` : head), {
    text_size: "notation",
  });
  return withBorder(foldedPanel(title, [shown]), [tool]);
}

/** A panel of calls of which one has failed looks like it. */
function withBorder(panel: CardElement, tools: readonly ShownTool[]): CardElement {
  if (!tools.some(hasFailed)) return panel;
  return { ...panel, border: { ...panelBorder, color: "red" } };
}

/** The latest twenty calls in one folded panel; their outputs share the room. */
function toolsPanel(view: ReplyView, bytes: number): CardElement | undefined {
  const count = view.tools.length + view.earlierTools;
  if (count === 0) return undefined;
  const panelOf = (shown: number, outputBytes: number) =>
    inLanguages(view, (language) => {
      const texts = cardTexts[language];
      const tools = view.tools.slice(-shown);
      const earlier = count - tools.length;
      const elements = tools.map((tool) => toolElement(tool, { language, bytes: outputBytes }));
      const all = [...(earlier === 0 ? [] : [smallText(texts.earlier(earlier))]), ...elements];
      return withBorder(foldedPanel(panelTitle(view, language), all, "tools"), view.tools);
    });
  for (
    let room = Math.min(bytes, 3 * maxOutputCharacters);
    room > 40;
    room = Math.floor(room / 2)
  ) {
    const panel = panelOf(maxTools, room);
    if (jsonBytes(panel) <= bytes) return panel;
  }
  for (let shown = maxTools; shown > 1; shown -= 1) {
    const panel = panelOf(shown, 0);
    if (jsonBytes(panel) <= bytes) return panel;
  }
  return panelOf(1, 0);
}

/** The panels of progress, which share the room; undefined without any. */
function progressParts(view: ReplyView, bytes: number): Record<string, CardElement> | undefined {
  const panels = (view.panels ?? []).filter((panel) => panel.kind === "progress");
  if (panels.length === 0) return undefined;
  const each = bytes / panels.length;
  return Object.fromEntries(
    panels.map((panel) => [`progress_${panel.name}`, progressPanel(view, panel, each)]),
  );
}

const progressIcons: Record<ProgressPanel["items"][number]["state"], string> = {
  pending: "⬜",
  in_progress: "▶️",
  done: "✅",
};
const maxStepCharacters = 200;

/** Steps, ticked off as far as they are done; where there is little room, the beginnings of their lines. */
function progressPanel(
  view: ReplyView,
  { name, title, items }: ProgressPanel,
  bytes: number,
): CardElement {
  const panelOf = (characters: number) => {
    const lines = items.map(
      ({ text, state }) => `${progressIcons[state]} ${shortLine(text, characters)}`,
    );
    const elements = [smallText(lines.join("\n"))];
    return inLanguages(view, (language) => ({
      ...foldedPanel(textIn(title, language), elements, `progress_${name}`),
      expanded: true,
    }));
  };
  for (
    let characters = maxStepCharacters;
    characters > 8;
    characters = Math.floor(characters / 2)
  ) {
    const panel = panelOf(characters);
    if (jsonBytes(panel) <= bytes) return panel;
  }
  return panelOf(4);
}

/** A text in one line, "…" where it is cut. */
function shortLine(text: string, characters: number): string {
  const said = printable(text).replaceAll(/\s+/g, " ");
  const head = headWithin(said, { characters, bytes: 3 * characters });
  return head.length < said.length ? `${head}…` : head;
}

/** Bytes that a section of a team takes besides its text. */
const sectionBytes = 400;

/** A folded section for each contribution of a team but the one that is the answer, and a line that names whose that is. */
function contributionParts(view: ReplyView, bytes: number): Record<string, CardElement> {
  const { contributions } = view;
  if (contributions === undefined) return {};
  const { list, earlier } = contributions;
  const more = (language: ReplyLanguage): string =>
    earlier === 0 ? "" : ` · ${cardTexts[language].earlierSaid(earlier)}`;
  const textBytes = Math.floor(bytes / Math.max(1, list.length)) - sectionBytes;
  const line = { ...smallText(""), element_id: "said_1" };
  const named = (language: ReplyLanguage): string =>
    list.map(({ agent }) => `${stateIcons.done} ${shownName(agent, language)}`).join(" · ");
  const briefly = inLanguages(view, (language) => ({
    ...line,
    ...smallText(`${named(language)}${more(language)}`),
  }));
  const sections =
    textBytes < 60 && list.length > 0
      ? [["said_1", briefly] as const]
      : list.map(({ agent, text }, at) => {
          const shown = [markdown(sectionText(text, textBytes), { text_size: "notation" })];
          const titleIn = (language: ReplyLanguage): string =>
            `${stateIcons.done} ${shownName(agent, language)}${at === 0 ? more(language) : ""}`;
          return [
            `said_${at + 1}`,
            inLanguages(view, (language) =>
              foldedPanel(titleIn(language), shown, `said_${at + 1}`),
            ),
          ] as const;
        });
  const speaker = inLanguages(view, (language) => ({
    ...smallText(speakerLine(view, language)),
    element_id: "speaker",
  }));
  return { ...Object.fromEntries(sections), speaker };
}

function shownName(agent: LocalText, language: ReplyLanguage): string {
  return headWithin(printable(textIn(agent, language)), { characters: 40, bytes: 100 });
}

function sectionText(text: string, bytes: number): string {
  const said = printable(text).trim();
  const head = headWithin(said, { characters: said.length, bytes: bytes * 0.75 });
  const whole = `${head}${head.length < said.length ? "…" : ""}`;
  const options = { end: "line", streaming: false, images: undefined, inPanel: true } as const;
  const { text: shown } = showAnswer(whole, startOfAnswer, options);
  if (shown.trim() === "") return "…";
  return jsonBytes(shown) <= bytes
    ? shown
    : fenced(headWithin(said, { characters: said.length, bytes: bytes / 2 }));
}

/** Who says what the answer has, and in which state that is. */
function speakerLine({ contributions, state }: ReplyView, language: ReplyLanguage): string {
  const { speaker } = contributions ?? {};
  const { speaking, choosingSpeaker } = cardTexts[language];
  const isRunning = state === "running";
  if (speaker === undefined) {
    return isRunning ? `${stateIcons.running} ${choosingSpeaker}` : stateIcons.stopped;
  }
  if (isRunning) return `${stateIcons.running} ${shownName(speaker, language)} · ${speaking}`;
  return `${state === "answered" ? stateIcons.done : stateIcons.stopped} ${shownName(speaker, language)}`;
}

/** Says where the rest of a very long answer is. */
function restLine(view: ReplyView): CardElement {
  const { rest, restFile } = cardTexts[view.language];
  return {
    ...smallText(view.state === "running" ? rest.later : rest.now(restFile), "grey"),
    element_id: "rest",
  };
}

/** Name of the file that holds the rest of a very long answer. */
export function restFileName(language: ReplyLanguage): string {
  return cardTexts[language].restFile;
}

function stopButton(view: ReplyView): CardElement | undefined {
  if (view.stop === undefined) return undefined;
  const { session, turnId } = view.stop;
  const value = { larkline: "stop", session, turn: turnId };
  return button(cardTexts[view.language].stop, { value, elementId: "stop" });
}

function againButton({ again, language }: ReplyView): CardElement | undefined {
  if (again === undefined) return undefined;
  return button(cardTexts[language].again[again.wish], {
    value: { larkline: "again", ...again },
    elementId: "again",
  });
}

const thumbs = { up: "👍", down: "👎" } as const;

/** A thumb up and one down, as quiet as buttons can be. */
function rateButtons({ turn }: RatedRun): CardElement[] {
  return (["up", "down"] as const).map((rating) => {
    const value = { larkline: "rate", turn, rating };
    return {
      ...button(thumbs[rating], { value, type: "text", elementId: `rate_${rating}` }),
      size: "tiny",
    };
  });
}

const maxItemCharacters = 120;

/** What was made, each with its button; once the answer is there. */
function listParts(view: ReplyView): Record<string, CardElement> {
  if (view.state === "running") return {};
  const panels = (view.panels ?? []).filter((panel) => panel.kind === "list");
  return Object.fromEntries(
    panels.map(({ name, title, items }) => {
      const id = `list_${name}`;
      const panel = inLanguages(view, (language) => {
        const elements = listElements(items, language);
        return { ...foldedPanel(textIn(title, language), elements, id), expanded: true };
      });
      return [id, panel];
    }),
  );
}

/** Each thing of a list above its buttons. */
export function listElements(items: ListPanel["items"], language: ReplyLanguage): CardElement[] {
  return items.flatMap(({ text, buttons: wanted = [] }) => {
    const shown = wanted.map(({ text: label, value }) =>
      button(textIn(label, language), { value }),
    );
    const [only] = shown;
    const row = only === undefined ? [] : [shown.length === 1 ? only : buttonRow(shown)];
    return [smallText(shortLine(text, maxItemCharacters)), ...row];
  });
}

/** What everybody reads below the answer: how it ended, who gave it, how long it took, and what else there is to say. */
function footerFacts({ footer, state, answer, language }: ReplyView): string[] {
  const { states, seconds: unit } = cardTexts[language];
  const { agent, seconds, note, line } = footer;
  const isWell = state === "running" || state === "answered" || answer.trim() === "";
  return [
    ...(isWell ? [] : [states[state]]),
    ...(agent === undefined ? [] : [shownName(agent, language)]),
    ...(seconds === undefined ? [] : [filled(unit, shownSeconds(seconds))]),
    ...(note === undefined ? [] : [headWithin(note, { characters: 300, bytes: 900 })]),
    ...(line === undefined ? [] : [oneLine(textIn(line, language), 100)]),
  ];
}

/** What the curious read: the model, what it took and cost, and the trace, by a link where there is a console. */
function footerDetails({ footer, language }: ReplyView): string[] {
  const { tokens, trace } = cardTexts[language];
  const { model, inputTokens, outputTokens, costUsd, currency, traceId, consoleUrl } = footer;
  const isCounted = inputTokens !== undefined || outputTokens !== undefined;
  const id = traceId === undefined ? "" : oneLine(traceId, 80);
  const link = `[${trace} ${inlineText(id.slice(0, 8))}](${consoleUrl ?? ""}/why?q=${encodeURIComponent(id)})`;
  return [
    ...(model === undefined ? [] : [inlineText(headWithin(model, { characters: 80, bytes: 200 }))]),
    ...(isCounted ? [filled(tokens, shownCount(inputTokens), shownCount(outputTokens))] : []),
    ...(costUsd === undefined ? [] : [moneyText(costUsd, language, currency)]),
    ...(id === "" ? [] : [consoleUrl === undefined ? `${trace} ${inlineText(id)}` : link]),
  ];
}

function shownCount(count: number | undefined): string {
  return count === undefined ? "–" : count.toLocaleString("en-US");
}

/** The last line of a reply: the thumbs, then what the footer says. Undefined when there is nothing to say. */
function lastLine(view: ReplyView): CardElement | undefined {
  const { rated } = view;
  if (rated === undefined) return footerPart(view, "footer");
  const footer = footerPart(view, "facts");
  const columns = [
    ...rateButtons(rated).map((each) => ({
      tag: "column",
      width: "auto",
      vertical_align: "center",
      elements: [each],
    })),
    ...(footer === undefined
      ? []
      : [
          {
            tag: "column",
            width: "weighted",
            weight: 1,
            vertical_align: "center",
            elements: [footer],
          },
        ]),
  ];
  return {
    tag: "column_set",
    element_id: "footer",
    flex_mode: "none",
    horizontal_spacing: "4px",
    columns,
  };
}

/** The footer: a line, and behind it what only some want to know. */
function footerPart(view: ReplyView, elementId: string): CardElement | undefined {
  const facts = footerFacts(view).map(printable).join(" · ");
  const details = footerDetails(view);
  if (details.length === 0) {
    return facts === "" ? undefined : { ...smallText(facts, "grey"), element_id: elementId };
  }
  const shown = markdown(details.join(" · "), { text_size: "notation" });
  const { border: _border, header, ...panel } = foldedPanel("", [shown], elementId);
  const title = inlineText(facts === "" ? cardTexts[view.language].details : facts);
  // A header is an object, as `foldedPanel` makes it.
  return {
    ...panel,
    header: { ...(header as object), title: markdown(`<font color='grey'>${title}</font>`) },
  };
}

const maxSummaryCharacters = 80;
/** What a person sees as one character may be many. */
const maxSummaryUnits = 170;
const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Words without the marks of markdown. */
function withoutMarks(text: string): string {
  return printable(text)
    .replaceAll(/^\s*(?:`{3,}|~{3,}).*$/gm, " ")
    .replaceAll(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
    .replaceAll(/^\s*(?:#{1,6}|>+|[-*+]|\|?[\s:|-]{3,})(?=\s|$)/gm, " ")
    .replaceAll(/\*\*|__|~~|`+/g, "")
    .replaceAll(/\s+/g, " ")
    .trim();
}

function shortened(text: string): string {
  let characters = 0;
  let end = 0;
  for (const { index, segment } of segmenter.segment(text)) {
    const tooLong = characters === maxSummaryCharacters || index + segment.length > maxSummaryUnits;
    if (tooLong) return `${text.slice(0, end).trimEnd()}…`;
    characters += 1;
    end = index + segment.length;
  }
  return text;
}

/** The line in the list of chats, as settings of a card have it. */
export function summaryPart(view: ReplyView): CardElement | undefined {
  return inLanguages(view, (language) => ({ content: summaryOf({ ...view, language }) }));
}

/** The turn waits for people and for nothing else: no text comes before one of them has answered. */
export function waitsForPeople({ state, tools }: ReplyView): boolean {
  return (
    state === "running" && tools.some(isWaiting) && !tools.some((tool) => tool.state === "running")
  );
}

function isWaiting({ state }: ShownTool): boolean {
  return state === "waiting";
}

/** The line in the list of chats: the beginning of the answer, what the reply waits for, or how it ended. */
export function summaryOf(view: ReplyView): string {
  if (waitsForPeople(view)) return waitingMark(view.tools, view.language);
  const state = cardTexts[view.language].states[view.state];
  const text = withoutMarks(view.answer.slice(0, 1_000));
  if (view.state === "running" || text === "") return state;
  return shortened(view.state === "answered" ? text : `${state} · ${text}`);
}

/** What the answer may take of one card. */
interface CardLimits {
  /** Bytes of JSON of the answer element's content. Default 20,000: the rest of the card needs the room. */
  answerBytes?: number;
  /** At most how many cuts to find; the text after the last one is not read. Default: all. */
  maxCuts?: number;
}

const defaultAnswerBytes = 20_000;

/**
 * Where the earlier cards of the reply end, in characters of the answer. Never changes a known cut; adds
 * cuts when the last card would become too full. A cut depends on the text before it (and the one
 * character after it), not on the pieces in which the answer arrived; a frame that is rendered after
 * every piece never shows more of a card than the cut leaves on it.
 */
export function extendCuts(
  answer: string,
  cuts: readonly number[],
  options: CardLimits = {},
): number[] {
  const { answerBytes = defaultAnswerBytes, maxCuts = Number.POSITIVE_INFINITY } = options;
  const limits = { answerBytes, maxCuts };
  const extended = [...cuts];
  let context = contextAt(answer, cuts, cuts.length);
  while (extended.length < maxCuts) {
    const start = extended.at(-1) ?? 0;
    const cut = firstCut(answer.slice(start), context, limits);
    if (cut === undefined) return extended;
    extended.push(start + cut.at);
    context = cut.context;
  }
  return extended;
}

/** What is open where a page begins, read from the text before it. */
export function contextAt(answer: string, cuts: readonly number[], page: number): Context {
  const from = cuts[page - 1];
  if (from === undefined) return startOfAnswer;
  const key = cuts.slice(0, page).join();
  const known = remembered.get(key);
  if (known !== undefined && answer.startsWith(known.before)) return known.context;
  const context = contextAfter(
    answer.slice(cuts[page - 2] ?? 0, from),
    contextAt(answer, cuts, page - 1),
  );
  remember(key, { before: answer.slice(0, from), context });
  return context;
}

/*
 * A cut is made at the first place of a kind after this share of the room; better places have smaller shares.
 * So a cut depends only on the text before it, however the text was split into pieces, and it never lies before
 * text that a person has already seen on the card.
 */
const shares = {
  /** Before a table or a code block, so that it has at least a third of a card. */
  block: 0.65,
  paragraph: 0.75,
  line: 0.88,
  /** Between the rows of a table. */
  row: 0.94,
  word: 0.94,
  grapheme: 0.97,
} as const;

/** Bytes that it costs to close a block on one card and to open it again on the next. */
const reopenBytes = 160;
/** Image keys are longer than most names of images. */
const imageKeyBytes = 140;

const extraBytes: Record<string, number> = {
  '"': 1,
  "\\": 1,
  "<": 3,
  ";": 3,
  "&": 3,
  "]": 3,
  "\t": 1,
  "[": 0,
  "!": 3,
  "^": scriptBytes,
  _: scriptBytes,
};

/** The most bytes that one UTF-16 unit takes in the JSON of the card, with everything that may be inserted after it. */
function unitCost(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code === 91 && text.charCodeAt(at - 1) === 33) return 1 + imageKeyBytes;
  if (code < 0x80) return 1 + (extraBytes[text[at] ?? ""] ?? 0);
  return code < 0x800 ? 2 : 3;
}

/** Line break, and two bytes for every blank of the indent. */
function lineOverhead({ text, kind }: Line): number {
  const indent = Math.min(80, text.length - text.trimStart().length);
  return (
    (kind === "quote" ? 6 : 4) +
    indent * 4 +
    (kind === "fence-open" || kind === "table-head" ? 24 : 0)
  );
}

/** Blanks of a row that is shown as code. They are counted when the row is complete: only then is it shown. */
function alignmentCost({ text, kind, table }: Line): number {
  if (table?.columns === undefined) return 0;
  const row = printable(text.trim());
  return Math.max(0, alignedRow(row, kind, table.columns).length - row.length);
}

function openingCost({ table }: Context): number {
  let bytes = reopenBytes;
  for (const line of [table?.head ?? "", table?.delimiter ?? ""]) {
    for (let at = 0; at < line.length; at += 1) bytes += unitCost(line, at);
  }
  return bytes;
}

function isWithinCharacter(text: string, at: number): boolean {
  const before = text.charCodeAt(at - 1);
  const after = text.charCodeAt(at);
  return before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff;
}

/** Whether a person sees one character at this place, so that it cannot be cut here. */
function isWithinGrapheme(text: string, at: number): boolean {
  const from = Math.max(0, at - 32);
  const before = text.slice(isWithinCharacter(text, from) ? from + 1 : from, at);
  const next = String.fromCodePoint(text.codePointAt(at) ?? 0);
  return segmenter.segment(before + next).containing(before.length)?.index !== before.length;
}

const breakAfter =
  /[\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303F\uFF00-\uFFEF]/u;

/** Whether both halves of the character have arrived. */
function isThere({ text, complete }: Line, at: number): boolean {
  return complete || at + 1 < text.length || !/[\uD800-\uDBFF]/.test(text[at] ?? "");
}

/** Whether the line may be cut before the character at `at`, after this share of the room. */
function mayCutWithin(text: string, at: number, share: number): boolean {
  if (isWithinCharacter(text, at)) return false;
  if (share >= 1) return true;
  if (isWithinGrapheme(text, at)) return false;
  if (share >= shares.grapheme) return true;
  return breakAfter.test(text[at - 1] ?? "") && !/\s/.test(text[at] ?? "");
}

interface Page {
  limits: Required<CardLimits>;
  cost: number;
  tables: number;
}

/** Whether the card ends before the line. */
function endsBefore(
  line: Line,
  { after, page, tablesSoFar }: { after: Line | undefined; page: Page; tablesSoFar: number },
): boolean {
  const share = page.cost / page.limits.answerBytes;
  switch (line.kind) {
    case "table-head":
      return share >= shares.block || (page.tables >= maxTablesPerCard && tablesSoFar < maxTables);
    case "fence-open":
      return share >= shares.block;
    case "table-row":
      return share >= shares.row;
    case "table-delimiter":
    case "fence-close":
      return false;
    case "code":
      return (
        share >= (line.text.trim() === "" ? shares.grapheme : shares.line) &&
        after?.kind !== "fence-open"
      );
    case "heading":
      return share >= shares.paragraph;
    default:
      return share >= (after?.kind === "blank" ? shares.paragraph : shares.line);
  }
}

/** Where within the line the card ends; undefined: it has room for the line. Adds the cost of the line. */
function cutWithin(line: Line, page: Page): number | undefined {
  const room = page.limits.answerBytes;
  const threshold = line.kind === "table-row" ? shares.grapheme : shares.word;
  const whole =
    line.kind === "table-head" || line.kind === "table-delimiter" || line.kind.startsWith("fence");
  page.cost += lineOverhead(line);
  const start = line.kind === "code" ? 0 : line.text.length - line.text.trimStart().length;
  for (let at = start; at < line.text.length; at += 1) {
    const share = page.cost / room;
    if (
      share >= threshold &&
      at > 0 &&
      !whole &&
      isThere(line, at) &&
      mayCutWithin(line.text, at, share)
    ) {
      return line.start + at;
    }
    page.cost += unitCost(line.text, at);
  }
  page.cost += alignmentCost(line);
  return undefined;
}

interface Cut {
  /** In characters of the slice. */
  at: number;
  context: Context;
}

/** The first cut of the slice. */
function firstCut(slice: string, context: Context, limits: Required<CardLimits>): Cut | undefined {
  const reader = new LineReader(slice, context, { end: "growing" });
  const page: Page = { limits, cost: openingCost(context), tables: reader.tablesHere };
  let after: Line | undefined;
  let before = context;
  for (let line = reader.next(); line !== undefined; line = reader.next()) {
    if (line.kind === "pending") return undefined;
    if (line.kind !== "blank") {
      const ends =
        after !== undefined && endsBefore(line, { after, page, tablesSoFar: before.tables });
      if (ends) return { at: line.start, context: before };
      const within = cutWithin(line, page);
      if (within !== undefined) return { at: within, context: reader.context(true) };
    }
    page.tables = reader.tablesHere;
    before = reader.context();
    after = line;
  }
  return undefined;
}

const maxRemembered = 64;
/** What was open at the cuts of the latest answers: reading a long answer again takes longer than a frame. */
const remembered = new Map<string, { before: string; context: Context }>();

function remember(key: string, entry: { before: string; context: Context }): void {
  remembered.delete(key);
  remembered.set(key, entry);
  for (const oldest of remembered.keys()) {
    if (remembered.size <= maxRemembered) return;
    remembered.delete(oldest);
  }
}

function contextAfter(slice: string, context: Context): Context {
  const withinLine = !slice.endsWith("\n");
  const reader = new LineReader(slice, context, { end: withinLine ? "within-line" : "line" });
  while (reader.next() !== undefined);
  return reader.context(withinLine);
}

// What all cards are made of.

/** An element of a card (JSON 2.0), or a whole card. */
export type CardElement = Record<string, unknown>;

/** Most of a whole card in bytes; the platform refuses 30 KB ("Card JSON 2.0"). */
export const maxCardBytes = 26_000;

/** UTF-8 bytes of the JSON, as the platform counts them. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** Every object with a `tag` counts: components, and the texts within them. */
function countElements(value: unknown): number {
  if (Array.isArray(value)) {
    return value.reduce<number>((sum, entry) => sum + countElements(entry), 0);
  }
  if (typeof value !== "object" || value === null) return 0;
  const own = "tag" in value ? 1 : 0;
  return own + countElements(Object.values(value));
}

/** The language of a card; `bilingual`: both are sent, and each reader sees that of their client. */
export interface Speech {
  language: ReplyLanguage;
  bilingual?: boolean | undefined;
}

const locales: Readonly<Record<ReplyLanguage, string>> = { zh: "zh_cn", en: "en_us" };

/**
 * What `draw` makes, in one language or in both: then every text that differs carries both in `i18n_content`, and
 * clients of any other language show the English one ("Configure multi-language content"). What is drawn must have
 * the same elements in each language.
 */
export function inLanguages<T>(
  { language, bilingual = false }: Speech,
  draw: (language: ReplyLanguage) => T,
): T {
  const own = draw(language);
  if (!bilingual) return own;
  // The merged value has the form of `own`, with one property more in some of its texts.
  return withBoth(
    own,
    new Map(replyLanguages.map((each) => [each, each === language ? own : draw(each)])),
  ) as T;
}

/** The same for a whole card. When both languages need more room than a card has, it has one. */
export function cardInLanguages(
  speech: Speech,
  draw: (language: ReplyLanguage) => CardElement,
): CardElement {
  const card = inLanguages(speech, draw);
  return speech.bilingual === true && jsonBytes(card) > maxCardBytes ? draw(speech.language) : card;
}

function withBoth(own: unknown, drawn: ReadonlyMap<ReplyLanguage, unknown>): unknown {
  const inside = (key: string | number, value: unknown): unknown =>
    withBoth(value, new Map([...drawn].map(([language, each]) => [language, memberOf(each, key)])));
  if (Array.isArray(own)) return own.map((value: unknown, at) => inside(at, value));
  if (typeof own !== "object" || own === null) return own;
  const merged = Object.fromEntries(
    Object.entries(own).map(([key, value]) => [key, inside(key, value)]),
  );
  const texts = [...drawn].flatMap(([language, each]) => {
    const text = memberOf(each, "content");
    return typeof text === "string" ? [[locales[language], text] as const] : [];
  });
  if (texts.length < replyLanguages.length || new Set(texts.map(([, text]) => text)).size < 2) {
    return merged;
  }
  return { ...merged, i18n_content: Object.fromEntries(texts) };
}

function memberOf(value: unknown, key: string | number): unknown {
  // Own members only: drawn elements are plain objects and arrays.
  return typeof value === "object" && value !== null
    ? (value as Record<string | number, unknown>)[key]
    : undefined;
}

export function plainText(content: string): CardElement {
  return { tag: "plain_text", content };
}

export function markdown(content: string, more: CardElement = {}): CardElement {
  return { tag: "markdown", ...more, content };
}

/** A time in markdown, shown in each reader's own time zone ("Rich text (Markdown)"). */
export function localTime(atMs: number): string {
  const at = (format: string) =>
    `<local_datetime millisecond='${atMs}' format_type='${format}'></local_datetime>`;
  return `${at("date_num")} ${at("time")}`;
}

export function button(
  text: string,
  more: { value: CardElement; type?: string; elementId?: string },
): CardElement {
  return {
    tag: "button",
    ...(more.elementId === undefined ? {} : { element_id: more.elementId }),
    text: plainText(text),
    type: more.type ?? "default",
    size: "small",
    behaviors: [{ type: "callback", value: more.value }],
  };
}

const panelBorder = { color: "grey", corner_radius: "5px" };

/** Buttons beside each other, on further lines where they do not fit. */
export function buttonRow(buttons: readonly CardElement[]): CardElement {
  const columns = buttons.map((each) => ({ tag: "column", width: "auto", elements: [each] }));
  return { tag: "column_set", flex_mode: "flow", horizontal_spacing: "8px", columns };
}

export function foldedPanel(
  title: string,
  elements: CardElement[],
  elementId?: string,
): CardElement {
  return {
    tag: "collapsible_panel",
    ...(elementId === undefined ? {} : { element_id: elementId }),
    expanded: false,
    header: {
      title: plainText(title),
      icon: { tag: "standard_icon", token: "down-small-ccm_outlined" },
      icon_position: "right",
      icon_expanded_angle: -180,
    },
    border: panelBorder,
    elements,
  };
}

/** The end of a text that fits, by characters and by bytes of JSON, never beginning within a character. */
function tailWithin(text: string, { characters, bytes }: TextRoom): string {
  let from = Math.max(0, text.length - characters);
  let tail = text.slice(from).toWellFormed();
  while (jsonBytes(tail) > bytes && tail.length > 0) {
    from += Math.max(1, Math.ceil((jsonBytes(tail) - bytes) / 4));
    tail = text.slice(from).toWellFormed();
  }
  return tail.length < text.length ? tail.replace(/^\uFFFD/, "") : tail;
}

/** The beginning of a text that fits, by characters and by bytes of JSON, never ending within a character. */
export function headWithin(text: string, { characters, bytes }: TextRoom): string {
  let to = Math.min(text.length, characters);
  let head = text.slice(0, to).toWellFormed();
  while (jsonBytes(head) > bytes && head.length > 0) {
    to -= Math.max(1, Math.ceil((jsonBytes(head) - bytes) / 4));
    head = text.slice(0, Math.max(0, to)).toWellFormed();
  }
  return head.length < text.length ? head.replace(/\uFFFD$/, "") : head;
}

export function fits(text: string, { characters, bytes }: TextRoom): boolean {
  return text.length <= characters && jsonBytes(text) <= bytes;
}

export interface TextRoom {
  characters: number;
  bytes: number;
}
