import type { SimMessage } from "../routes.ts";
import { chatPanel, type ChatPanel } from "./chat-panel.ts";
import { button, element, type ToastKind } from "./element.ts";
import { changesBetween, messageAfter, type Recording, type RecordingStep } from "./recording.ts";
import { base64Of, byTime, createStore, type Store } from "./store.ts";
import type { Words } from "./words.ts";

interface PlayerParts {
  recording: Recording;
  words: Words;
  toast: (kind: ToastKind, text: string) => void;
  onClose: () => void;
}

/** Shows a recorded conversation as it happened, without any bot. */
export interface Player {
  readonly root: HTMLElement;
  stop(): void;
}

const tickMs = 50;
/** Longer silences are cut to this. */
const longestSilenceMs = 2500;
const speeds = [1, 4] as const;

export function createPlayer(parts: PlayerParts): Player {
  const { words } = parts;
  const steps = shortened(parts.recording);
  const totalMs = (steps.at(-1)?.atMs ?? 0) + 300;
  const stage = element("div", { class: "stage" });
  const clock = { atMs: 0, next: 0, speed: 1, playing: true };
  const messages = new Map<string, SimMessage>();
  let panel: ChatPanel | undefined;
  const reset = (): void => {
    panel?.stop();
    messages.clear();
    [clock.atMs, clock.next] = [0, 0];
    panel = stagePanel(parts, messages, () => clock.speed);
    stage.replaceChildren(panel.root);
  };
  const advance = (toMs: number): void => {
    clock.atMs = Math.min(totalMs, toMs);
    for (let step = steps[clock.next]; step !== undefined && step.atMs <= clock.atMs; step = steps[clock.next]) {
      clock.next += 1;
      const message = messageAfter(messages.get(step.messageId), step);
      if (message === undefined) continue;
      messages.set(message.messageId, message);
      panel?.show(message);
    }
  };
  const bar = playerBar(parts, totalMs, {
    onPlay() {
      if (clock.atMs >= totalMs) reset();
      clock.playing = !clock.playing || clock.atMs === 0;
      draw();
    },
    onSpeed(speed) {
      clock.speed = speed;
      draw();
    },
    onSeek(atMs) {
      if (atMs < clock.atMs) reset();
      advance(atMs);
      draw();
    },
  });
  const draw = (): void => bar.show(clock);
  const timer = setInterval(() => {
    if (!clock.playing) return;
    advance(clock.atMs + tickMs * clock.speed);
    if (clock.atMs >= totalMs) clock.playing = false;
    draw();
  }, tickMs);
  reset();
  draw();
  const stop = (): void => {
    clearInterval(timer);
    panel?.stop();
  };
  return { root: element("main", { class: "player", "aria-label": words.replay }, [bar.root, stage]), stop };
}

/** The steps with long silences cut. */
function shortened({ steps }: Recording): Recording["steps"] {
  let [cutMs, lastMs] = [0, 0];
  return steps.map((step) => {
    const silenceMs = step.atMs - lastMs;
    lastMs = step.atMs;
    cutMs += Math.max(0, silenceMs - longestSilenceMs);
    return { ...step, atMs: step.atMs - cutMs };
  });
}

function stagePanel(
  { recording, words, toast }: PlayerParts,
  messages: ReadonlyMap<string, SimMessage>,
  speed: () => number,
): ChatPanel {
  const { chat, people, bots, images } = recording;
  const apps = bots.map((bot) => ({
    ...bot,
    openId: bot.appId,
    transport: "auto" as const,
    connections: 0,
    webhookUrl: undefined,
  }));
  const none = { messages: [], calls: [], deliveries: [], refusals: [], monthCalls: 0, faults: 0 };
  const { store } = createStore({ apps, people, chats: [chat], ...none });
  return chatPanel({
    chat,
    store: { ...store, state: store.state, online: true, message: (messageId) => messages.get(messageId) },
    words,
    toast,
    speed,
    readOnly: true,
    act: async () => false,
    imageUrl: (key) => images[key],
    click: async () => toast("info", words.onlyRecording),
  });
}

interface PlayerControls {
  onPlay: () => void;
  onSpeed: (speed: number) => void;
  onSeek: (atMs: number) => void;
}

interface PlayerBar {
  root: HTMLElement;
  show(clock: { atMs: number; speed: number; playing: boolean }): void;
}

function playerBar({ words, onClose }: PlayerParts, totalMs: number, controls: PlayerControls): PlayerBar {
  const play = button("", { class: "primary play" }, controls.onPlay);
  const rates = speeds.map((speed) => button(`${speed}×`, {}, () => controls.onSpeed(speed)));
  const seek = element("input", {
    type: "range",
    min: "0",
    max: String(totalMs),
    step: "100",
    value: "0",
    "aria-label": words.position,
    oninput: () => controls.onSeek(Number(seek.value)),
  });
  const time = element("span", { class: "player-time", role: "timer" });
  const root = element("div", { class: "player-bar", role: "group", "aria-label": words.replay }, [
    play,
    element("div", { class: "rates", role: "group", "aria-label": words.speed }, rates),
    seek,
    time,
    button(words.closeReplay, {}, onClose),
  ]);
  return {
    root,
    show({ atMs, speed, playing }) {
      const ended = atMs >= totalMs;
      play.textContent = playing ? words.pause : ended ? words.again : words.play;
      root.dataset.state = playing ? "playing" : ended ? "ended" : "paused";
      for (const [index, rate] of rates.entries()) rate.setAttribute("aria-pressed", String(speeds[index] === speed));
      seek.value = String(atMs);
      time.textContent = `${minutes(atMs)} / ${minutes(totalMs)}`;
    },
  };
}

function minutes(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Notes how messages come and change, from the opening of the page on. */
interface Recorder {
  note(message: SimMessage): void;
  /** What was noted of a chat; undefined when nothing was. */
  recordingOf(chatId: string): Promise<Recording | undefined>;
}

/** Steps kept of a chat: beyond them nothing more is noted, so that what is kept has its beginning. */
const mostSteps = 20_000;

interface Notes {
  startedAt: number;
  steps: RecordingStep[];
  messages: Map<string, SimMessage>;
}

export function createRecorder(store: Store): Recorder {
  const chats = new Map<string, Notes>();
  return {
    note(message) {
      const notes = chats.get(message.chatId) ?? firstNotes(store, message);
      chats.set(message.chatId, notes);
      const changes = changesBetween(notes.messages.get(message.messageId), message);
      if (changes.length === 0 || notes.steps.length >= mostSteps) return;
      notes.messages.set(message.messageId, message);
      const atMs = Math.round(performance.now() - notes.startedAt);
      notes.steps.push({ atMs, messageId: message.messageId, changes });
    },
    async recordingOf(chatId) {
      const chat = store.state.chats.find((one) => one.chatId === chatId);
      const notes = chats.get(chatId);
      if (chat === undefined || notes === undefined) return undefined;
      return {
        version: 1,
        chat,
        people: store.state.people.filter(({ openId }) => chat.members.includes(openId)),
        bots: store.state.apps.map(({ appId, name }) => ({ appId, name })),
        images: await imagesIn(JSON.stringify(notes.steps)),
        steps: [...notes.steps],
      };
    },
  };
}

/** The messages that were there before stand at the beginning. */
function firstNotes(store: Store, first: SimMessage): Notes {
  const earlier = store.state.messages
    .filter(({ chatId, messageId }) => chatId === first.chatId && messageId !== first.messageId)
    .toSorted(byTime);
  return {
    startedAt: performance.now(),
    steps: earlier.map((message) => ({
      atMs: 0,
      messageId: message.messageId,
      changes: changesBetween(undefined, message),
    })),
    messages: new Map(earlier.map((message) => [message.messageId, message])),
  };
}

async function imagesIn(text: string): Promise<Record<string, string>> {
  const images: Record<string, string> = {};
  for (const key of new Set(text.match(/img_v3_[\w-]+/g))) {
    const response = await fetch(`/api/images/${key}`, { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) continue;
    const blob = await response.blob();
    images[key] = `data:${blob.type};base64,${await base64Of(blob)}`;
  }
  return images;
}

/** Hands a recording to the person as a file. */
export function downloadRecording(recording: Recording, name: string): void {
  const url = URL.createObjectURL(new Blob([JSON.stringify(recording)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name.replaceAll(/[^\p{L}\p{N}]+/gu, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
