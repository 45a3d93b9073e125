type Listener<Value> = (value: Value) => void;

/** Typed listeners by event name. A listener that throws is the listener's bug and reaches the caller. */
export interface Notifier<Events> {
  on<Name extends keyof Events>(name: Name, listener: Listener<Events[Name]>): () => void;
  emit<Name extends keyof Events>(name: Name, value: Events[Name]): void;
}

export function createNotifier<Events>(): Notifier<Events> {
  const listeners: { [Name in keyof Events]?: Set<Listener<Events[Name]>> } = {};
  return {
    on(name, listener) {
      const set = (listeners[name] ??= new Set());
      set.add(listener);
      return () => void set.delete(listener);
    },
    emit(name, value) {
      for (const listener of listeners[name] ?? []) listener(value);
    },
  };
}
