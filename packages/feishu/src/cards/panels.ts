import type { ReplyLanguage, ReplyView, ShownTool } from "@larkline/protocol";
import { showAnswer } from "./answer.ts";
import { fenced, printable } from "./escape.ts";
import {
  button,
  foldedPanel,
  headWithin,
  inLanguages,
  jsonBytes,
  markdown,
  plainText,
  tailWithin,
  type CardElement,
} from "./element.ts";
import { startOfAnswer } from "./lines.ts";
import { saidOutcome } from "./outcome-texts.ts";
import { cardTexts, type CardTexts } from "./texts.ts";

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

/** A shorter wait for a runner is nothing that a person notices. */
const shownQueueMs = 1_000;

/** Seconds as a person reads them: one decimal below ten. */
export function shownSeconds(seconds: number): string {
  return seconds < 10 ? (Math.round(seconds * 10) / 10).toString() : Math.round(seconds).toString();
}

/** Small text in which nothing is markup. */
function smallText(content: string, color = "default"): CardElement {
  return { tag: "div", text: { ...plainText(content), text_size: "notation", text_color: color } };
}

/** The thinking, folded: the end of it when it is long. */
export function thinkingPanel(view: ReplyView, bytes: number): CardElement | undefined {
  const thinking = printable(view.thinking.slice(-2 * maxThinkingCharacters)).trim();
  if (thinking === "") return undefined;
  const running = view.state === "running" && view.answer === "";
  const tail = tailWithin(thinking, { characters: maxThinkingCharacters, bytes: Math.floor(bytes * 0.75) });
  const { text } = showAnswer(tail, startOfAnswer, {
    end: "line",
    streaming: false,
    images: undefined,
    tablesPerCard: 0,
  });
  const room = { characters: maxThinkingCharacters * 2, bytes };
  const shown = jsonBytes(text) <= bytes ? text : fenced(headWithin(tail, { ...room, bytes: bytes / 2 }));
  const content = `${tail.length < view.thinking.trim().length ? "…\n\n" : ""}${shown === "" ? "…" : shown}`;
  const element = markdown(content, { element_id: "thinking_text", text_size: "notation" });
  return inLanguages(view, (language) => {
    const { thinking: now, thought } = cardTexts[language];
    return foldedPanel(running ? now : thought, [element], "thinking");
  });
}

/** What a reader should know without unfolding: that a person is waited for, or a runner that is away. */
function waitingMarks({ tools }: ReplyView, texts: CardTexts): string[] {
  return [
    ...(tools.some(({ state }) => state === "waiting") ? [`${stateIcons.waiting} ${texts.waiting}`] : []),
    ...(tools.some(isAway) ? [`${awayIcon} ${texts.away}`] : []),
  ];
}

function isAway({ state, isAway: away }: ShownTool): boolean {
  return state === "running" && away === true;
}

function toolTitle(tool: ShownTool, texts: CardTexts): string {
  const name = headWithin(printable(tool.name).replaceAll(/\s+/g, " "), { characters: 64, bytes: 200 });
  const { state, elapsedMs, queuedMs = 0 } = tool;
  return [
    `${isAway(tool) ? awayIcon : stateIcons[state]} ${name}`,
    ...(state === "waiting" ? [texts.waiting] : []),
    ...(isAway(tool) ? [texts.away] : []),
    ...(elapsedMs === undefined ? [] : [texts.seconds(shownSeconds(elapsedMs / 1000))]),
    ...(queuedMs > shownQueueMs ? [texts.queued(shownSeconds(queuedMs / 1000))] : []),
  ].join(" · ");
}

function toolElement(tool: ShownTool, { language, bytes }: { language: ReplyLanguage; bytes: number }): CardElement {
  const title = toolTitle(tool, cardTexts[language]);
  const said = saidOutcome(tool, language).slice(0, 2 * maxOutputCharacters);
  const output = printable(said).trimEnd();
  const head = headWithin(output, { characters: maxOutputCharacters, bytes });
  if (head.trim() === "") return smallText(title);
  return foldedPanel(title, [
    markdown(fenced(head.length < output.length ? `${head}…` : head), { text_size: "notation" }),
  ]);
}

/** All calls in one folded panel, the latest twenty of them; outputs share what room there is. */
export function toolsPanel(view: ReplyView, bytes: number): CardElement | undefined {
  const count = view.tools.length + view.earlierTools;
  if (count === 0) return undefined;
  const panelOf = (shown: number, outputBytes: number) =>
    inLanguages(view, (language) => {
      const texts = cardTexts[language];
      const tools = view.tools.slice(-shown);
      const earlier = count - tools.length;
      const elements = tools.map((tool) => toolElement(tool, { language, bytes: outputBytes }));
      return foldedPanel(
        [texts.tools(count), ...waitingMarks(view, texts)].join(" · "),
        [...(earlier === 0 ? [] : [smallText(texts.earlier(earlier))]), ...elements],
        "tools",
      );
    });
  for (let room = Math.min(bytes, 3 * maxOutputCharacters); room > 40; room = Math.floor(room / 2)) {
    const panel = panelOf(maxTools, room);
    if (jsonBytes(panel) <= bytes) return panel;
  }
  for (let shown = maxTools; shown > 1; shown -= 1) {
    const panel = panelOf(shown, 0);
    if (jsonBytes(panel) <= bytes) return panel;
  }
  return panelOf(1, 0);
}

/** Says where the rest of a very long answer is. */
export function restLine(view: ReplyView): CardElement {
  const { rest, restFile } = cardTexts[view.language];
  return { ...smallText(view.state === "running" ? rest.later : rest.now(restFile), "grey"), element_id: "rest" };
}

/** Name of the file that holds the rest of a very long answer. */
export function restFileName(language: ReplyLanguage): string {
  return cardTexts[language].restFile;
}

export function stopButton(view: ReplyView): CardElement | undefined {
  if (view.stop === undefined) return undefined;
  const { session, turnId } = view.stop;
  const value = { larkline: "stop", session, turn: turnId };
  return button(cardTexts[view.language].stop, { value, elementId: "stop" });
}

function footerFacts({ footer, language }: ReplyView): string[] {
  const texts = cardTexts[language];
  const { model, inputTokens, outputTokens, costUsd, seconds, note, traceId } = footer;
  const counted = inputTokens !== undefined || outputTokens !== undefined;
  return [
    ...(model === undefined ? [] : [headWithin(model, { characters: 80, bytes: 200 })]),
    ...(counted ? [texts.tokens(shownCount(inputTokens), shownCount(outputTokens))] : []),
    ...(costUsd === undefined ? [] : [shownCost(costUsd)]),
    ...(seconds === undefined ? [] : [texts.seconds(shownSeconds(seconds))]),
    ...(note === undefined ? [] : [headWithin(note, { characters: 300, bytes: 900 })]),
    ...(traceId === undefined ? [] : [headWithin(traceId, { characters: 80, bytes: 200 })]),
  ];
}

function shownCount(count: number | undefined): string {
  return count === undefined ? "–" : count.toLocaleString("en-US");
}

function shownCost(costUsd: number): string {
  if (costUsd > 0 && costUsd < 0.0001) return "<$0.0001";
  return `$${costUsd.toFixed(costUsd < 1 ? 4 : 2)}`;
}

/**
 * How a reply with an answer ended when it did not end well (without one the answer says it), and
 * what it took; nothing when there is nothing to say.
 */
export function footerLine(view: ReplyView): CardElement | undefined {
  const well = view.state === "running" || view.state === "answered" || view.answer.trim() === "";
  const ended = well ? [] : [cardTexts[view.language].states[view.state]];
  const facts = [...ended, ...footerFacts(view)];
  if (facts.length === 0) return undefined;
  return { ...smallText(facts.map(printable).join(" · "), "grey"), element_id: "footer" };
}
