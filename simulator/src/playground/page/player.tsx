import { Component, type VNode } from "preact";
import { Chat } from "./chat.tsx";
import type { ToastKind } from "./dialog.tsx";
import { messageAfter, type Recording } from "./recording.ts";
import { Store } from "./store.ts";
import type { Words } from "./words.ts";

interface PlayerProps {
  recording: Recording;
  words: Words;
  toast: (kind: ToastKind, text: string) => void;
  onClose: () => void;
}

const tickMs = 50;
/** Longer silences are cut to this. */
const longestSilenceMs = 2500;
const speeds = [1, 4] as const;

/** Shows a recorded conversation as it happened, without any bot. */
export class Player extends Component<PlayerProps> {
  readonly #steps = shortened(this.props.recording);
  readonly #totalMs = (this.#steps.at(-1)?.atMs ?? 0) + 300;
  #store = storeOf(this.props.recording);
  /** Counts how often it began anew. */
  #round = 0;
  #atMs = 0;
  #next = 0;
  #speed = 1;
  #playing = true;
  #timer: ReturnType<typeof setInterval> | undefined;

  override componentDidMount(): void {
    this.#timer = setInterval(() => {
      if (!this.#playing) return;
      this.#advance(this.#atMs + tickMs * this.#speed);
      if (this.#atMs >= this.#totalMs) this.#playing = false;
      this.forceUpdate();
    }, tickMs);
  }

  override componentWillUnmount(): void {
    clearInterval(this.#timer);
  }

  #reset(): void {
    [this.#atMs, this.#next] = [0, 0];
    this.#round += 1;
    this.#store = storeOf(this.props.recording);
  }

  #advance(toMs: number): void {
    this.#atMs = Math.min(this.#totalMs, toMs);
    for (
      let step = this.#steps[this.#next];
      step !== undefined && step.atMs <= this.#atMs;
      step = this.#steps[this.#next]
    ) {
      this.#next += 1;
      const message = messageAfter(this.#store.message(step.messageId), step);
      if (message !== undefined) this.#store.apply({ type: "message", message });
    }
  }

  #play(): void {
    if (this.#atMs >= this.#totalMs) this.#reset();
    this.#playing = !this.#playing || this.#atMs === 0;
    this.forceUpdate();
  }

  #seek(atMs: number): void {
    if (atMs < this.#atMs) this.#reset();
    this.#advance(atMs);
    this.forceUpdate();
  }

  override render({ recording, words, toast, onClose }: PlayerProps): VNode {
    const ended = this.#atMs >= this.#totalMs;
    return (
      <main class="player" aria-label={words.replay}>
        <div
          class="player-bar"
          role="group"
          aria-label={words.replay}
          data-state={this.#playing ? "playing" : ended ? "ended" : "paused"}
        >
          <button type="button" class="primary play" onClick={() => this.#play()}>
            {this.#playing ? words.pause : ended ? words.again : words.play}
          </button>
          <div class="rates" role="group" aria-label={words.speed}>
            {speeds.map((speed) => (
              <button
                type="button"
                aria-pressed={speed === this.#speed}
                onClick={() => {
                  this.#speed = speed;
                  this.forceUpdate();
                }}
              >
                {`${speed}×`}
              </button>
            ))}
          </div>
          <input
            type="range"
            min="0"
            max={this.#totalMs}
            step="100"
            value={this.#atMs}
            aria-label={words.position}
            onInput={({ currentTarget }) => this.#seek(Number(currentTarget.value))}
          />
          <span class="player-time" role="timer">
            {`${minutes(this.#atMs)} / ${minutes(this.#totalMs)}`}
          </span>
          <button type="button" onClick={onClose}>
            {words.closeReplay}
          </button>
        </div>
        <div class="stage">
          <Chat
            key={this.#round}
            chat={recording.chat}
            store={this.#store}
            words={words}
            toast={toast}
            speed={() => this.#speed}
            readOnly
            act={async () => false}
            imageUrl={(key) => recording.images[key]}
            click={async () => toast("info", words.onlyRecording)}
          />
        </div>
      </main>
    );
  }
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

function storeOf({ chat, people, bots }: Recording): Store {
  const apps = bots.map((bot) => ({
    ...bot,
    openId: bot.appId,
    transport: "auto" as const,
    connections: 0,
    webhookUrl: undefined,
  }));
  return new Store({ apps, people, chats: [chat] });
}

function minutes(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
