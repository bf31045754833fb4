import { useRoving } from "@/components/charts/useRoving";

interface SegmentedProps<T extends string> {
  label: string;
  options: readonly { value: T; label: string }[];
  value: T;
  onSelect: (value: T) => void;
}

/** A choice of a few values, one Tab stop; the arrow keys choose. */
export function Segmented<T extends string>({ label, options, value, onSelect }: SegmentedProps<T>) {
  const roving = useRoving([value]);
  return (
    <div role="radiogroup" aria-label={label} className="seg" onKeyDown={roving.onKeyDown}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          role="radio"
          aria-checked={option.value === value}
          data-item={option.value}
          tabIndex={option.value === value ? 0 : -1}
          onClick={() => onSelect(option.value)}
          // With arrow keys the focus chooses, as for radio buttons.
          onFocus={() => option.value !== value && onSelect(option.value)}
        >
          {option.label}
        </button>
      ))}
    </div>
  );
}
