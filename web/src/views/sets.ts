/** Return the set with an item added, or removed if it was there. */
export function toggled<T>(before: ReadonlySet<T>, item: T): ReadonlySet<T> {
  const next = new Set(before);
  if (!next.delete(item)) next.add(item);
  return next;
}
